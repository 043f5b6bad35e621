"""The models there are: fetched, kept on disk, and chosen from as the settings say."""

from tollbridge.catalogue.catalogue import Catalogue, Listing
from tollbridge.catalogue.choosing import choose_models, is_favourite
from tollbridge.catalogue.disk import Source

__all__ = ["Catalogue", "Listing", "Source", "choose_models", "is_favourite"]

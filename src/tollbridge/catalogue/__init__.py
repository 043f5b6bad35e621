"""The models there are: fetched, kept on disk, and chosen from as the settings say."""

from tollbridge.catalogue.catalogue import Catalogue, Listing, Source
from tollbridge.catalogue.choosing import choose_models, is_favourite

__all__ = ["Catalogue", "Listing", "Source", "choose_models", "is_favourite"]

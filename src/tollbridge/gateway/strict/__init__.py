"""A gateway that forgives nothing: the whole request by the specification's schema, and by its laws."""

from tollbridge.gateway.strict.laws import check_laws
from tollbridge.gateway.strict.schema import check_schema
from tollbridge.gateway.strict.seals import Seals

__all__ = ["Seals", "check_laws", "check_schema"]

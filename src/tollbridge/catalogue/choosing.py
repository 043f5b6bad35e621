"""Which models are offered, and what a person knows better of them than the gateway does."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tollbridge.core.models import Model
from tollbridge.settings.model import ModelSettings, Settings
from tollbridge.settings.patterns import any_matches, matching


def choose_models(models: Iterable[Model], settings: Settings) -> list[Model]:
    """The models that are allowed and not denied, corrected: favourites first, then as the gateway has it."""
    found = [corrected(model, settings) for model in models if is_allowed(model.id, settings)]
    return sorted(found, key=lambda model: _place(model.id, settings))


def is_allowed(model_id: str, settings: Settings) -> bool:
    """Where nothing is allowed by name everything is; what is denied stays denied."""
    allowed = not settings.allow or any_matches(settings.allow, model_id)
    return allowed and not any_matches(settings.deny, model_id)


def is_favourite(model_id: str, settings: Settings) -> bool:
    return any_matches(settings.favourites, model_id)


def corrected(model: Model, settings: Settings) -> Model:
    """The model with what the settings say of it, the closest pattern last."""
    for told in matching(settings.models, model.id):
        model = _corrected(model, told)
    return model


def _corrected(model: Model, told: ModelSettings) -> Model:
    abilities = msgspec.structs.asdict(told.capabilities)
    said = {name: value for name, value in abilities.items() if value is not None}
    return msgspec.structs.replace(
        model,
        name=told.name or model.name,
        context_window=told.context_window or model.context_window,
        max_output_tokens=told.max_output_tokens or model.max_output_tokens,
        told={**model.told, **said},
    )


def _place(model_id: str, settings: Settings) -> int:
    """Favourites in the order in which they were written down."""
    for place, pattern in enumerate(settings.favourites):
        if any_matches([pattern], model_id):
            return place
    return len(settings.favourites)

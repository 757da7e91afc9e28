"""Components of an embedded plugin's package: Pulumi's SDK registers them and their children with the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ml_foundations.rehearsal.plugins.provider import Provider
from ml_foundations.rehearsal.progress import RehearsalError


def construct(provider: Provider, request: Any, engine: str) -> Any:
    """Answer a ConstructRequest with a component of the provider's."""
    # Only this call needs the whole SDK: importing it takes as long as starting the plugin.
    import pulumi
    from pulumi.provider import ConstructResult
    from pulumi.provider import Provider as SdkProvider
    from pulumi.provider.server import ProviderServicer

    class Adapter(SdkProvider):
        def construct(
            self,
            name: str,
            resource_type: str,
            inputs: Mapping[str, Any],
            options: pulumi.ResourceOptions | None = None,
        ) -> ConstructResult:
            made = provider.construct(resource_type, name, inputs, options)
            return ConstructResult(made.urn, {"resources": made.resources})

    servicer = ProviderServicer(Adapter(provider.sdk.version), [], engine)
    try:
        context: Any = None  # It answers for no error of ours.
        return asyncio.run(servicer.Construct(request, context))
    except Exception as error:
        raise RehearsalError(str(error.__context__ or error)) from None

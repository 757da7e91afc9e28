"""The package as a Pulumi plugin: every component, for programs in any of Pulumi's languages."""

import ml_foundations
from pulumi.provider.experimental import component_provider_host

COMPONENTS = [getattr(ml_foundations, name) for name in ml_foundations.__all__ if not name.endswith("Args")]

if __name__ == "__main__":
    component_provider_host(name="ml-foundations", components=COMPONENTS, version=ml_foundations.__version__)

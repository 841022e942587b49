"""What registries have told of images: digests, and layers for each architecture."""

from collections.abc import Mapping, Set

from leadline_controller.framework.model import Layer

Layers = tuple[Layer, ...]
_MAX_IMAGES = 4096


class KnownLayers:
    """The layers of images. digests: image -> its name by digest. layers: name by digest ->
    architecture ("" for all) -> layers."""

    def __init__(self) -> None:
        self.digests: dict[str, str] = {}
        self.layers: dict[str, Mapping[str, Layers]] = {}

    def says(self, image: str, by_digest: str, layers: Mapping[str, Layers]) -> bool:
        """Whether this is known already."""
        return self.digests.get(image) == by_digest and self.layers.get(by_digest) == layers

    def learn(
        self, image: str, by_digest: str, layers: Mapping[str, Layers], wanted: Set[str]
    ) -> set[str]:
        """A registry tells this. Returns the images that were forgotten for it, the oldest of those
        that are not wanted."""
        self.digests[image], self.layers[by_digest] = by_digest, layers
        forgotten: set[str] = set()
        if len(self.layers) > _MAX_IMAGES:
            kept = {self.digests.get(name, name) for name in wanted} | {by_digest}
            unwanted = (digest for digest in self.layers if digest not in kept)
            oldest = next(unwanted, next(iter(self.layers)))
            del self.layers[oldest]
            forgotten = {name for name, digest in self.digests.items() if digest == oldest}
        elif len(self.digests) > _MAX_IMAGES:
            unwanted = (name for name in self.digests if name not in wanted)
            forgotten = {next(unwanted, next(iter(self.digests)))}
        for name in forgotten:
            del self.digests[name]
        return forgotten

    def of(self, image: str, architecture: str) -> Layers | None:
        """The layers of the image for an architecture, None if unknown."""
        known = self.layers.get(self.digests.get(image, image))
        if not known:
            return None
        found = known.get(architecture, known.get(""))
        return next(iter(known.values())) if found is None else found

    def by_any_name(self) -> dict[str, Mapping[str, Layers]]:
        """The layers for each architecture, by digest and by name."""
        return self.layers | {name: self.layers[at] for name, at in self.digests.items()}

"""Upkeep of an index: another encoder, another vector index, checks and repair.

A search from the command line needs none of it, so each method imports its own part.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from ..core.checks import check_flags
from ..core.errors import InputError
from ..core.progress import OnProgress, ignore, messages
from ..indexes.base import VectorIndex
from ..indexes.manifest import IndexManifest, IndexMetadata
from ..indexes.registry import IndexSpec
from .models.cache import model_name
from .models.load import load_encoder
from .search.ranking.relevance_calibration import renew_scale
from .store.root import to_sync

if TYPE_CHECKING:
    from ..indexes.tuning.optimize import OptimizationResult
    from .indexing.report import Report
    from .indexing.switch import SwitchReport
    from .integrity.repair import Repair
    from .integrity.verify import Verification
    from .open_index import OpenIndex


class Upkeep:
    """The calls that keep an index sound and fast, and that change its encoder."""

    _index: OpenIndex
    _sync: Callable[..., Report]
    documents: Callable[[], list[dict[str, Any]]]

    def switch(
        self,
        model: str | os.PathLike[str],
        *,
        keep: bool = True,
        progress: OnProgress = ignore,
    ) -> SwitchReport:
        """Replace the encoder: embed every passage with the new one, then change all vectors at once.

        Until then the old encoder answers every search, here and in other processes; then the new one does, with no
        restart. You may interrupt the call: the same call later goes on where it stopped, unless another write came
        between. The old vectors stay for `rollback` until the next switch.

        :param model: the folder or name of an encoder that splits texts into the same tokens, such as one fine-tuned
            from the index's own. If it reads more tokens of a text, passages keep the length that they have.
        :param keep: keep the old vectors for `rollback`; else they are erased from the disk.
        :raises EncoderMismatchError: when the encoder splits texts into other tokens, or reads fewer tokens than a
            passage may have. It then needs a new index.
        """
        from .indexing.switch import switch

        check_flags(keep=keep)
        name = model_name(model)
        store = self._index.store()
        encoder = self._index.models.prepare(load_encoder(name))
        with self._index.writer(store) as writer:
            report = switch(writer, encoder, progress, keep=keep)
            renew_scale(writer.snapshot(), encoder)
        self._index.models.use(encoder)
        return report

    def rollback(
        self,
        model: str | os.PathLike[str] | None = None,
        *,
        progress: OnProgress = ignore,
    ) -> SwitchReport:
        """Restore the encoder before the last switch, with its vectors; embed newer documents with it.

        :param model: the present location of that encoder, if it was moved.
        :raises StoreError: when there was no switch, or it was rolled back already.
        """
        from .indexing.switch import previous_encoder, rollback

        name = None if model is None else model_name(model)
        with self._index.writer() as writer:
            encoder = self._index.models.prepare(previous_encoder(writer.head, name))
            report = rollback(writer, encoder, progress)
            renew_scale(writer.snapshot(), encoder)
        self._index.models.use(encoder)
        return report

    def build_index(
        self,
        kind: str,
        *,
        search: Mapping[str, Any] | None = None,
        settle: Callable[[VectorIndex], IndexMetadata] | None = None,
        **build: Any,
    ) -> IndexManifest:
        """Replace the vector index by one of another kind, built beside the old one; later writes keep it current.

        "flat" is the default: from 100,000 passages on, a later write may replace it by lists of codes. Call
        `optimize(recall=1)` to keep exact search.

        >>> Retriever.open("docs").build_index("ivf_int8", nlist=1024, search={"nprobe": 32})  # doctest: +SKIP

        :param kind: a key of `indexes.registry.KINDS`; see its `build_parameters` and `search_parameters`.
        :param settle: called with the finished index; returns the search parameters and measurements to publish with
            it. If it raises, the old index stays in service.
        :raises InputError: when there is no such kind, or no such parameter.
        """
        if not isinstance(kind, str):
            raise InputError(f"a kind of index is named by a text, not {kind!r}: expected one such as 'ivf_int8'")
        if search is not None and not isinstance(search, Mapping):
            raise InputError(f"search is a mapping of parameters, such as {{'nprobe': 32}}, not {search!r}")
        with self._index.writer() as writer:
            writer.index.build(IndexSpec(kind, build, dict(search or {})), settle)
            published = writer.snapshot().published
        assert published is not None
        return published

    def optimize(
        self,
        recall: float = 0.99,
        *,
        memory: float | None = None,
        latency: float | None = None,
        queries: Sequence[str] | ArrayLike | None = None,
        kinds: Sequence[str] = (),
        seed: int = 0,
        progress: OnProgress = ignore,
    ) -> OptimizationResult:
        """Build the fastest vector index that meets requirements, prove it on other queries, and put it in service.

        If no index meets them, nothing changes, and the result says which limits would be possible.

        :param recall: the share of the ten best passages that searches find, on average over queries: the lower 95 %
            bound of this average must reach it.
        :param memory: the bytes that searches may read at random.
        :param latency: the 99th percentile of the seconds that a query may keep the vector index busy, one query at a
            time, for the 200 neighbours that a search takes into account.
        :param queries: real queries to measure with, or their vectors, shape (n, dim); by default sentences of the
            passages. An index without an encoder needs vectors.
        :param kinds: the keys of `indexes.registry.KINDS` to try; by default the promising ones.
        :param seed: the seed of the sample of queries.
        """
        from ..indexes.tuning.optimize import check_kinds
        from ..indexes.tuning.requirements import Requirements
        from .store.derived import benchmark_queries

        requirements = Requirements(recall, memory, latency).check()
        check_kinds(kinds)
        queries = benchmark_queries.check(queries, seed)
        with self._index.writer() as writer:
            encoder = self._index.models.encoder_of(writer.head.encoder)
            sample = benchmark_queries.choose(queries, writer.snapshot(), encoder, requirements, seed)
            log = messages(progress, "optimizing")
            return writer.index.optimize(requirements, sample, kinds=tuple(kinds), log=log)

    def verify(self, *, deep: bool = False, progress: OnProgress = ignore) -> Verification:
        """Check the index against the present documents, and its parts against each other.

        :param deep: also look for vectors that do not belong to their texts.
        """
        from .integrity.verify import verify

        check_flags(deep=deep)
        folder, encoder_of = self._index.folder, self._index.models.encoder_of
        return self._index.read(lambda snapshot: verify(snapshot, folder, encoder_of, deep=deep, progress=progress))

    def repair(self, *, deep: bool = False, progress: OnProgress = ignore) -> Repair:
        """Embed wrong vectors anew, drop documents with faulty passages, rebuild both indexes, and sync the folder.

        Vectors are wrong if they changed in the store since the vector index was published; with `deep`, also if they
        do not belong to their texts. If the committed state is damaged, the one before is committed again first.

        :raises InputError: when the folder does not exist, or pictures cannot be read again, before anything is
            changed.
        """
        from .integrity.repair import languages_of_dropped, repair

        check_flags(deep=deep)
        request = None
        if self._index.folder:
            request = to_sync(self._index.location, self._index.existing(), None, self.documents)
        faults = self.verify().faults
        languages = self._index.read(lambda snapshot: languages_of_dropped(snapshot, faults))
        self._index.commit_previous()
        with self._index.writer() as writer:
            result = repair(writer, faults, self._index.models.encoder_of, deep=deep, progress=progress)
        return result if request is None else result.followed_by(self._sync(request, ocr=languages))

"""ConcatCache: what its slots share, and what they hold. Its operations are tested in test_caches.py."""

from edgegen.model.concat_cache import ConcatCache
from tests.runtime.model.caches import CONCAT_SPEC, read_concat, returned


def test_forked_slots_share_their_memory_until_one_goes_on() -> None:
    cache = ConcatCache(CONCAT_SPEC)
    cache.reserve(3, 0)
    cache.replace(0, returned([1.0, 2.0]))
    alone = cache.nbytes
    assert alone == 2 * CONCAT_SPEC.bytes_per_token
    cache.fork(0, 1)
    cache.fork(0, 2)
    assert cache.nbytes == alone
    cache.truncate(1, 1)
    assert (read_concat(cache, 1), read_concat(cache, 0), read_concat(cache, 2)) == ([1.0], [1.0, 2.0], [1.0, 2.0])
    assert cache.copied_bytes == CONCAT_SPEC.bytes_per_token
    assert cache.nbytes == alone + CONCAT_SPEC.bytes_per_token


def test_a_slot_that_is_emptied_holds_no_memory() -> None:
    cache = ConcatCache(CONCAT_SPEC)
    cache.reserve(2, 0)
    cache.replace(1, returned([1.0, 2.0]))
    cache.truncate(1, 0)
    assert (cache.nbytes, cache.copied_bytes, cache.slots) == (0, 0, 2)
    assert [buffer.array.shape for buffer in cache.past(1)] == [(1, 2, 0, 3)] * 2 + [(1, 1, 0, 4)] * 2

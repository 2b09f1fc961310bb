"""Threads of a server: as many as there may be, work that outlives its request, and a process that ends in time."""

import asyncio
import threading
import time
import weakref
from collections.abc import Callable

import pytest

from edgegen.server.http.api_error import ApiError
from edgegen.server.http.last_call import LastCall
from edgegen.server.http.work import KINDS, Place, WorkThreads, note_long_body
from tests.waiting import PATIENCE_S, until


def test_more_work_than_threads_waits() -> None:
    threads, opened = WorkThreads("test", 2), threading.Event()
    together, most = [0], [0]
    lock = threading.Lock()

    def work() -> int:
        with lock:
            together[0] += 1
            most[0] = max(most[0], together[0])
        assert opened.wait(PATIENCE_S)
        with lock:
            together[0] -= 1
        return threading.get_ident()

    async def run() -> list[int]:
        jobs = [asyncio.ensure_future(threads.run(work)) for _ in range(20)]
        while together[0] < 2:
            await asyncio.sleep(0.001)
        opened.set()
        return await asyncio.gather(*jobs)

    assert len({*asyncio.run(run())}) == 2
    assert (most[0], threads.threads) == (2, 2)
    assert until(lambda: threads.unfinished == 0)


def test_an_idle_thread_takes_the_next_work() -> None:
    threads = WorkThreads("test", 8)

    async def run() -> None:
        for _ in range(20):
            await threads.run(int)
            while threads.unfinished:
                await asyncio.sleep(0.001)

    asyncio.run(run())
    assert threads.threads == 1


def test_an_error_and_a_panic_are_told() -> None:
    class Panic(BaseException):
        pass

    def panic() -> None:
        raise Panic("a library's")

    async def run() -> None:
        threads = WorkThreads("test", 1)
        with pytest.raises(ZeroDivisionError):
            await threads.run(divmod, 1, 0)
        with pytest.raises(RuntimeError, match="Panic: a library's"):
            await threads.run(panic)
        assert await threads.run(max, 1, 2) == 2

    asyncio.run(run())


def test_a_request_that_has_left_keeps_its_place_until_its_work_has_ended() -> None:
    threads, opened, begun = WorkThreads("test", 1), threading.Event(), threading.Event()
    free = list[str]()

    def work() -> None:
        begun.set()
        assert opened.wait(PATIENCE_S)

    async def request(name: str, work: Callable[[], object]) -> None:
        place = Place(lambda: free.append(name))
        try:
            await threads.run(work)
        finally:
            place.leave()

    async def run() -> None:
        first = asyncio.ensure_future(request("first", work))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        waiting = asyncio.ensure_future(request("waiting", lambda: pytest.fail("its client had left")))
        await asyncio.sleep(0)
        for task in (first, waiting):
            task.cancel()
        await asyncio.gather(first, waiting, return_exceptions=True)
        assert free == []  # both have left, and the work of the first goes on
        assert threads.unfinished == 2
        opened.set()
        await threads.run(int)
        assert free == ["first", "waiting"]

    asyncio.run(run())


def test_an_error_of_work_keeps_nothing_that_its_functions_held() -> None:
    """A caller may keep the error for long."""

    class Large:
        pass

    held = list[weakref.ref[Large]]()

    def work() -> None:
        large = Large()
        held.append(weakref.ref(large))
        try:
            raise KeyError(large.__class__.__name__)
        except KeyError:
            raise ValueError("refused") from None

    async def run() -> None:
        with pytest.raises(ValueError, match="refused") as error:
            await WorkThreads("test", 1).run(work)
        assert held[0]() is None
        assert error.value.__traceback__ is not None

    asyncio.run(run())


def test_requests_with_long_bodies_have_threads_of_their_own() -> None:
    async def run() -> None:
        of_long = WorkThreads("long", 1)
        threads = WorkThreads("test", 1, of_long=of_long)
        assert await threads.run(lambda: threading.current_thread().name) == "edgegen-test"
        place = Place(lambda: None)
        note_long_body()
        assert await threads.run(lambda: threading.current_thread().name) == "edgegen-long"
        place.leave()
        assert await threads.run(lambda: threading.current_thread().name) == "edgegen-test"

    asyncio.run(run())


def test_work_without_a_request_has_no_place() -> None:
    async def run() -> None:
        place = Place(lambda: pytest.fail("free twice"))
        place.hold()
        place.leave()
        assert await WorkThreads("test", 1).run(int) == 0

    asyncio.run(run())


def test_all_threads_of_a_server_together_are_few() -> None:
    assert sum(kind.most for kind in KINDS) <= 32


def test_memory_that_is_not_there_is_no_failure_of_the_server() -> None:
    error = ApiError.of(MemoryError("secret detail"))
    assert (error.status, error.code) == (503, "out_of_memory")
    assert error.headers == {"Retry-After": "5"}
    assert "secret" not in error.message


class _Left:
    def __init__(self) -> None:
        self.codes = list[int]()

    def __call__(self, code: int) -> None:
        self.codes.append(code)


def test_a_process_that_ends_in_time_is_not_left() -> None:
    left = _Left()
    with LastCall(PATIENCE_S, left, dict) as call:
        call.begin()
        call.begin()
    assert left.codes == []


def test_a_process_that_was_not_told_to_end_is_not_left() -> None:
    left = _Left()
    with LastCall(0.0, left, dict):
        time.sleep(0.01)
    assert left.codes == []


def test_a_process_that_does_not_end_is_left(caplog: pytest.LogCaptureFixture) -> None:
    left = _Left()
    with LastCall(0.01, left, lambda: {"compiling": 3}) as call:
        call.begin()
        assert until(lambda: bool(left.codes))
    assert left.codes[0] == 0
    assert "did not end in time and is left; work that has not ended: 3 compiling" in caplog.text


@pytest.mark.parametrize(("error", "code"), [(None, 0), (KeyboardInterrupt(), 130)])
def test_work_that_is_left_over_is_not_waited_for(error: BaseException | None, code: int) -> None:
    left = _Left()
    call = LastCall(PATIENCE_S, left, lambda: {"compiling": 1}).__enter__()
    call.begin()
    call.__exit__(type(error) if error else None, error, None)
    assert left.codes == [code]


def test_an_error_at_the_end_is_told_although_work_is_left_over() -> None:
    left = _Left()
    with pytest.raises(ValueError, match="to be told"), LastCall(PATIENCE_S, left, lambda: {"compiling": 1}):
        raise ValueError("to be told")
    assert left.codes == []

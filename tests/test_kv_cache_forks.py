"""KVCache: who shares its memory and when that is copied."""
import copy
import pickle
import threading

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kv_caches import DTYPES, dtypes, filled, holds, poison, rank3, same, state, tokens

from gemmkit import KVCache


def test_forks_share_until_one_writes():
    for first in (0, 1):
        pair = [filled(4)[0]]
        k, v = pair[0].k.copy(), pair[0].v.copy()
        pair.append(pair[0].fork())
        writer, other = pair[first], pair[1 - first]
        assert writer._store is other._store and writer.k.ctypes.data == other.k.ctypes.data
        memory = other._store
        new = tokens(writer, 1, 2)
        writer.append(*new)
        assert writer._store is not memory and other._store is memory and not np.shares_memory(writer.k, other.k)
        holds(other, k, v)
        holds(writer, np.concatenate((k, new[0]), axis=2), np.concatenate((v, new[1]), axis=2))
        poison(other)
        room = other.capacity
        other.append(*tokens(other, 2, room - 4))  # alone now: in place
        assert other._store is memory and len(other) == room
        holds(writer, np.concatenate((k, new[0]), axis=2), np.concatenate((v, new[1]), axis=2))


@pytest.mark.parametrize("first", [0, 1])
def test_forks_after_truncate(first):
    cache, k, v = filled(6, capacity=20)
    pair = [cache, cache.fork()]
    writer, other = pair[first], pair[1 - first]
    writer.truncate(2)
    holds(other, k, v)
    new = tokens(writer, 1, 3)
    writer.append(*new)
    holds(other, k, v)
    holds(writer, np.concatenate((k[:, :, :2], new[0]), axis=2), np.concatenate((v[:, :, :2], new[1]), axis=2))
    assert writer.capacity == other.capacity == 20
    other.reset()
    other.append(*new)
    holds(other, *new)
    holds(writer, np.concatenate((k[:, :, :2], new[0]), axis=2), np.concatenate((v[:, :, :2], new[1]), axis=2))


def test_the_last_fork_needs_no_copy():
    for left in range(3):
        family = [filled(4)[0]]
        family.append(family[0].fork())
        family.append(family[1].fork())  # a fork of a fork
        assert len({id(cache._store) for cache in family}) == 1
        last = family.pop(left)
        memory, k, v = last._store, last.k.copy(), last.v.copy()
        view = family[0].k
        del family  # a view needs memory, but is no fork
        new = tokens(last, 1, 3)
        last.append(*new)
        assert last._store is memory
        holds(last, np.concatenate((k, new[0]), axis=2), np.concatenate((v, new[1]), axis=2))
        same(view, k)


def test_a_chain_of_forks():
    """One a step, as a search that may go back keeps them."""
    root, k, v = filled(30)
    root.reset()
    chain = [root]
    for i in range(30):
        step = chain[-1].fork()
        step.append(k[:, :, i:i + 1], v[:, :, i:i + 1])
        chain.append(step)
    for i, cache in enumerate(chain):
        holds(cache, k[:, :, :i], v[:, :, :i])
    for cache in chain[::2]:
        cache.append(v[..., :4], np.pad(k, [(0, 0)] * 3 + [(0, 1)]))
    for i, cache in enumerate(chain[1::2]):
        holds(cache, k[:, :, :2 * i + 1], v[:, :, :2 * i + 1])


@dtypes
def test_copies(dtype):
    cache, k, v = filled(5, 2, 3, 4, 5, dtype, capacity=9)
    fork = copy.copy(cache)
    assert type(fork) is KVCache and fork is not cache and fork._store is cache._store
    for twin in (fork, copy.deepcopy(cache)):
        holds(twin, k, v)
        assert twin.dtype == cache.dtype and twin.capacity == 9 and twin != cache
    first, second = copy.deepcopy([cache, cache])
    assert first is second and not np.shares_memory(first.k, cache.k)
    memory = cache._store
    del fork, twin
    cache.append(k, v)
    first.append(v[..., :4], v)
    assert cache._store is not memory  # 10 tokens: by growth
    holds(cache, np.concatenate((k, k), axis=2), np.concatenate((v, v), axis=2))
    holds(first, np.concatenate((k, v[..., :4]), axis=2), np.concatenate((v, v), axis=2))


@dtypes
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles(dtype, protocol):
    cache, k, v = filled(5, 2, 3, 4, 5, dtype, capacity=1000)
    data = pickle.dumps(cache, protocol)
    assert len(data) < (cache.nbytes if protocol else 2 * cache.nbytes)
    twin = pickle.loads(data)
    assert type(twin) is KVCache and twin.dtype == cache.dtype and twin.capacity == 5
    holds(twin, k, v)
    twin.append(k, v)
    holds(twin, np.concatenate((k, k), axis=2), np.concatenate((v, v), axis=2))
    holds(cache, k, v)
    for empty in (KVCache(0, 1, 0, 3, dtype), KVCache(2, 3, 4, 5, dtype, capacity=3)):
        twin = pickle.loads(pickle.dumps(empty, protocol))
        holds(twin, empty.k, empty.v)
        assert (twin.batch, twin.heads, twin.head_size, twin.v_head_size) == (
            empty.batch, empty.heads, empty.head_size, empty.v_head_size)


def test_forks_in_threads():
    cache, k, v = filled(50, capacity=400)
    forks = [cache.fork() for _ in range(4)]
    added = [tokens(cache, i + 1, 100) for i in range(4)]
    del cache
    start = threading.Barrier(4)

    def work(fork, new):
        start.wait()
        for i in range(100):
            fork.append(new[0][:, :, i:i + 1], new[1][:, :, i:i + 1])

    threads = [threading.Thread(target=work, args=args) for args in zip(forks, added, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for fork, new in zip(forks, added, strict=True):
        holds(fork, np.concatenate((k, new[0]), axis=2), np.concatenate((v, new[1]), axis=2))


class Family(RuleBasedStateMachine):
    """Caches that fork, grow and vanish, against a list of arrays for each."""

    which = st.integers(0, 9)

    @initialize(dtype=st.sampled_from(DTYPES), batch=st.integers(1, 2), heads=st.integers(1, 3), size=st.integers(1, 3),
                v_size=st.integers(1, 3), capacity=st.sampled_from([0, 0, 5, 30]))
    def begin(self, dtype, batch, heads, size, v_size, capacity):
        cache = KVCache(batch, heads, size, v_size, dtype, capacity=capacity)
        self.pairs = [(cache, cache.k.copy(), cache.v.copy())]
        self.seed = 0
        self.views = []  # (view, its values, its memory)
        self.cut = []  # memory where a cache that shared it was truncated: views of it promise nothing

    def users(self, store):
        return sum(cache._store is store for cache, *_ in self.pairs)

    def grow(self, at, new, form=lambda x: x, source=None):
        cache, k, v = self.pairs[at]
        n = new[0].shape[2]
        store, room = cache._store, cache.capacity
        in_place = n == 0 or (self.users(store) == 1 and cache.length + n <= room)
        cache.append(*(form(x) for x in source or new))
        assert (cache._store is store) == in_place
        needed = len(cache)
        assert cache.capacity == (room if n == 0 or needed <= room else max(needed, room + room // 2, 16))
        self.pairs[at] = (cache, np.concatenate((k, new[0]), axis=2), np.concatenate((v, new[1]), axis=2))

    @rule(which=which, n=st.sampled_from([0, 1, 1, 2, 5, 17]), form=st.sampled_from(["4", "3", "swapped", "strided"]))
    def append(self, which, n, form):
        at = which % len(self.pairs)
        self.seed += 1
        forms = {"4": lambda x: x, "3": rank3, "swapped": lambda x: x.astype(x.dtype.newbyteorder()),
                 "strided": lambda x: np.repeat(x[::-1], 2, axis=2)[::-1, :, ::2]}
        self.grow(at, tokens(self.pairs[at][0], self.seed, n), forms[form])

    @rule(which=which, other=which, part=st.floats(0, 1), step=st.sampled_from([1, 1, 2, -1]))
    def append_views(self, which, other, part, step):
        """Of itself or a relative, perhaps after a truncation."""
        at, other = which % len(self.pairs), other % len(self.pairs)
        source, k, v = self.pairs[other]
        if len(source) > 40:
            return
        views = source.k[:, :, ::step], source.v[:, :, ::step]
        new = k[:, :, ::step], v[:, :, ::step]
        self.truncate(at, part)
        self.grow(at, new, source=views)

    @rule(which=which, part=st.floats(0, 1))
    def truncate(self, which, part):
        at = which % len(self.pairs)
        cache, k, v = self.pairs[at]
        n = round(part * len(cache))
        if n < len(cache):
            self.views = [held for held in self.views if held[2] is not cache._store]
            if self.users(cache._store) > 1:
                self.cut.append(cache._store)
        cache.reset() if n == 0 else cache.truncate(n)
        self.pairs[at] = (cache, k[:, :, :n], v[:, :, :n])

    @precondition(lambda self: len(self.pairs) < 7)
    @rule(which=which, how=st.sampled_from(["fork", "fork", "copy", "deepcopy", "pickle"]))
    def multiply(self, which, how):
        cache, k, v = self.pairs[which % len(self.pairs)]
        twin = {"fork": KVCache.fork, "copy": copy.copy, "deepcopy": copy.deepcopy,
                "pickle": lambda x: pickle.loads(pickle.dumps(x))}[how](cache)
        assert (twin._store is cache._store) == (how in ("fork", "copy"))
        assert twin.capacity == (len(cache) if how == "pickle" else cache.capacity)
        self.pairs.append((twin, k, v))

    @precondition(lambda self: len(self.pairs) > 1)
    @rule(which=which)
    def drop(self, which):
        del self.pairs[which % len(self.pairs)]

    @rule(which=which)
    def look(self, which):
        cache, k, v = self.pairs[which % len(self.pairs)]
        if not any(cache._store is store for store in self.cut):
            self.views += [(cache.k, k, cache._store), (cache.v, v, cache._store)]

    @rule(which=which, wrong=st.integers(0, 3))
    def refused(self, which, wrong):
        cache = self.pairs[which % len(self.pairs)][0]
        before = state(cache)
        k, v = tokens(cache, 0, 2)
        k, v = [(k[:, :, :1], v), (k, v[..., :-1]), (k[:, 1:], v), (k, v.astype(np.float64))][wrong]
        with pytest.raises(TypeError if wrong == 3 else ValueError, match="^[kv]: "):
            cache.append(k, v)
        assert state(cache) == before

    @invariant()
    def all_hold_what_they_should(self):
        caches = [cache for cache, *_ in self.pairs]
        for cache in caches:
            longest = max((relative for relative in caches if relative._store is cache._store), key=len)
            if not any(held[2] is cache._store for held in self.views):  # a view may be of more than is left
                poison(longest)
        for cache, k, v in self.pairs:
            holds(cache, k, v)
        for view, want, _ in self.views:
            same(view, want)


Family.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestFamily = Family.TestCase

"""Levels to ranks, and tables to owners and back."""

from __future__ import annotations

import json

import pytest
import torch

from nerfleet.kernels.hash_grid.op import grid_arguments
from nerfleet.kernels.hash_grid.spec import LEVEL_INTS, GridSpec
from nerfleet.parallel.memory import BYTES_OWNED, BYTES_READ, BYTES_SENT, training_bytes
from nerfleet.parallel.ownership import assign_levels, everything, from_plain, level_groups, to_plain
from nerfleet.parallel.sharding import SECTOR, Sharding

GRID = GridSpec(n_levels=8, n_features=4, log2_hashmap_size=12, base_resolution=4, growth=1.7)


@pytest.mark.parametrize("n_ranks", [1, 2, 3, 8])
def test_every_level_has_one_owner_and_bytes_are_even(n_ranks: int) -> None:
    owned = assign_levels(GRID, n_ranks)
    assert owned.width == GRID.n_features
    assert sorted(level for rank in range(n_ranks) for level in owned.levels(rank)) == list(range(8))
    sizes = [sum(len(block) for block in owned.blocks(rank)) for rank in range(n_ranks)]
    assert all(sizes)
    largest = max(end - first for first, end in zip(GRID.level_offsets, GRID.level_offsets[1:]))
    assert max(sizes) <= sum(sizes) / n_ranks + largest


@pytest.mark.parametrize("n_ranks, width", [(9, 2), (16, 2), (17, 1), (32, 1)])
def test_more_ranks_than_levels_share_a_level_by_columns(n_ranks: int, width: int) -> None:
    owned = assign_levels(GRID, n_ranks)
    assert owned.width == width
    assert all(owned.units)
    assert sorted(column for rank in range(n_ranks) for column in owned.columns(rank)) == list(range(GRID.n_output))
    assert sum(len(block) for rank in range(n_ranks) for block in owned.blocks(rank)) == GRID.n_params


def test_columns_of_a_level_encode_as_the_whole() -> None:
    """A rank's own table with its own layout gives its columns of the features."""
    owned, table, positions = assign_levels(GRID, 12), torch.randn(GRID.n_params), torch.rand(50, 3)
    blocks = [owned.blocks(rank) for rank in range(12)]
    whole = torch.ops.nerfleet.hash_grid(positions, table, *grid_arguments(GRID))
    for rank in range(12):
        own = Sharding(rank, 1, blocks).pick(table)
        found = torch.ops.nerfleet.hash_grid(positions, own, owned.width, *owned.arguments(rank), 0)
        assert torch.allclose(found, whole[:, owned.columns(rank)], atol=1e-6)


def test_a_faster_rank_owns_more() -> None:
    owned = assign_levels(GRID, 2, (3.0, 1.0))
    assert len(owned.units[0]) >= 2 * len(owned.units[1]) > 0
    assert all(assign_levels(GRID, 8, (100.0, *[1.0] * 7)).units)


def test_ownership_is_remembered() -> None:
    owned = assign_levels(GRID, 12)
    plain = json.loads(json.dumps(to_plain(owned)))
    assert from_plain(GRID, 12, plain) == owned
    assert from_plain(GRID, 4, plain) is None
    for damage in ({"width": 3}, {"units": plain["units"][:-1]}, {"units": [[0], [0]]}):
        with pytest.raises(ValueError, match="another grid"):
            from_plain(GRID, 12, plain | damage)


def test_a_rank_s_own_table_is_laid_out_anew() -> None:
    owned = assign_levels(GRID, 3)
    for rank in range(3):
        levels = owned.levels(rank)
        scales, flat = owned.arguments(rank)
        assert scales == [GRID.scales[level] for level in levels]
        first = 0
        for i, level in enumerate(levels):
            mine, whole = (flat[LEVEL_INTS * i :][:LEVEL_INTS], GRID.levels[LEVEL_INTS * level :][:LEVEL_INTS])
            assert mine[2] == first
            assert (mine[:2], mine[3:]) == (list(whole[:2]), list(whole[3:]))
            first += mine[1]


def test_groups_of_levels_go_from_fine_to_coarse() -> None:
    base = GridSpec(n_levels=8, n_features=4, log2_hashmap_size=19, base_resolution=16, growth=2.0)
    assert level_groups(base) == [range(4, 8), range(4)]
    two_features = GridSpec(n_levels=16, n_features=2, log2_hashmap_size=19, base_resolution=16, growth=1.38)
    assert level_groups(two_features)[-1].start == 0
    for grid in (base, two_features, GRID, GridSpec(5, 8, 10, 4, 1.5), GridSpec(3, 1, 10, 4, 1.5)):
        groups = level_groups(grid)
        assert [level for group in groups[::-1] for level in group] == list(range(grid.n_levels))
        assert all(group.start * grid.n_features % 8 == 0 for group in groups)


@pytest.mark.parametrize("n_data, n_grid", [(1, 1), (3, 1), (1, 3), (2, 2), (2, 12)])
def test_slices_make_the_whole(n_data: int, n_grid: int) -> None:
    owned = assign_levels(GRID, n_grid)
    blocks = [owned.blocks(rank) for rank in range(n_grid)] if n_grid > 1 else everything(GRID.n_params)
    table = torch.randn(GRID.n_params)
    cuts = (GRID.level_offsets[2], GRID.level_offsets[5]) if n_grid == 1 else ()
    ranks = [Sharding(rank, n_data, blocks, cuts=cuts) for rank in range(n_data * n_grid)]
    assert len(ranks[0].pieces) == 1 + len(cuts)
    slices = [sharding.pick(table) for sharding in ranks]
    assert all(len(part) % SECTOR == 0 for part in slices)
    assert torch.equal(ranks[0].assemble(slices), table)
    for sharding, part in zip(ranks, slices):
        whole, mine = sharding.shard(table, torch.device("cpu"))
        assert torch.equal(mine.master, part)
        assert mine.master.data_ptr() == mine.weights.data_ptr()
        if sharding.alone:
            assert whole is mine
            continue
        padded = sharding.padded(whole.weights)
        assert torch.equal(padded[: len(whole.weights)], whole.weights)
        assert whole.gradient.numel() == whole.weights.numel()
        assert whole.master.numel() == whole.first_moment.numel() == 0
        for piece in sharding.pieces:  # what the collectives exchange: equal slices, whole sectors
            assert (piece.end - piece.begin) % (n_data * SECTOR) == piece.own_begin % SECTOR == 0
            own = padded[piece.begin : piece.end].view(n_data, -1)[sharding.rank // n_grid]
            assert torch.equal(own, part[piece.own_begin : piece.own_end])


def test_owners_share_the_optimiser_s_bytes() -> None:
    n = 10_000_000
    one, two = (training_bytes(n, 32, 0, 0, 0, ranks) for ranks in (1, 2))
    assert one == n * (BYTES_READ + BYTES_OWNED)
    assert two == n * BYTES_READ + n * (BYTES_OWNED + BYTES_SENT) // 2
    assert training_bytes(n, 32, 1000, 0, 0, 1) - one > 1000 * 4 * 32

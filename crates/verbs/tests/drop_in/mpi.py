"""Two or more ranks: messages of many sizes around a ring, and sums. Prints "N ranks agree" if all results are correct."""
import array

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, count = world.Get_rank(), world.Get_size()
assert count > 1, "at least two ranks are needed"


def words(seed, length):
    return array.array("I", ((seed * 2654435761 + at * 40503) & 0xFFFFFFFF for at in range(length)))


for length in (1, 3, 1000, 20000, 500000):
    mine = words(rank, length)
    room = array.array("I", bytes(4 * length))
    world.Sendrecv([mine, MPI.UNSIGNED], (rank + 1) % count, 7, [room, MPI.UNSIGNED], (rank - 1) % count, 7)
    assert room == words((rank - 1) % count, length), f"{length} words were corrupted"
    total = array.array("Q", bytes(8 * length))
    world.Allreduce([array.array("Q", mine), MPI.UNSIGNED_LONG], [total, MPI.UNSIGNED_LONG], MPI.SUM)
    expected = [sum(column) for column in zip(*(words(other, length) for other in range(count)))]
    assert list(total) == expected, f"a sum of {length} words is wrong"

hosts = world.gather(MPI.Get_processor_name())
if rank == 0:
    print(f"{count} ranks agree, {len(set(hosts))} host names", flush=True)

"""Two queue pairs of one process, connected out of band; one writes into the other's memory, with immediate data."""
import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

BYTES = 100_000
context = Context(name=get_device_list()[0].name.decode())
domain = PD(context)
queues = CQ(context, 16), CQ(context, 16)
rights = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
memories = [MR(domain, BYTES, rights) for _ in queues]
pairs = [QP(domain, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap())) for cq in queues]
gid = context.query_gid(1, 0)
for mine, peer in (pairs, pairs[::-1]):
    way = AHAttr(gr=GlobalRoute(dgid=gid, sgid_index=0), is_global=1, port_num=1)
    attributes = QPAttr(port_num=1)
    attributes.qp_access_flags = rights
    attributes.dest_qp_num, attributes.rq_psn, attributes.sq_psn = peer.qp_num, peer.qp_num + 1, mine.qp_num + 1
    attributes.ah_attr, attributes.path_mtu = way, e.IBV_MTU_1024
    attributes.timeout, attributes.retry_cnt, attributes.rnr_retry, attributes.min_rnr_timer = 14, 7, 7, 12
    mine.to_rts(attributes)

words = bytes(at * 31 & 255 for at in range(BYTES))
memories[0].write(words, BYTES)
pairs[1].post_recv(RecvWR(num_sge=1, sg=[SGE(memories[1].buf, 4, memories[1].lkey)]))
send = SendWR(opcode=e.IBV_WR_RDMA_WRITE_WITH_IMM, num_sge=1, sg=[SGE(memories[0].buf, BYTES, memories[0].lkey)], imm_data=77)
send.set_wr_rdma(memories[1].rkey, memories[1].buf)
pairs[0].post_send(send)
found = 0
while not found:
    found, completions = queues[1].poll()
assert completions[0].status == e.IBV_WC_SUCCESS and completions[0].imm_data == 77
assert memories[1].read(BYTES, 0) == words
print(f"{BYTES} bytes arrived as they were written")

//! RDMA Write: a program writes into another program's memory, and then notifies that program with a
//! message.
//!
//! `cargo run --release -p kiban-rdma-runtime --example rdma_write` runs both ends in one process. To use
//! two hosts, run it with `serve 0.0.0.0:7471` on one and with `connect HOST:7471` on the other. The option
//! `--over efe:ADDRESS` replaces TCP with the EFE-like transport. See `--help`.
//!
//! The server registers a page for remote writes and sends its address when it accepts. The client writes
//! there, which causes no completion at the server, then sends an empty message. A received message means
//! that every earlier write is in place (RFC 5040 §5.5), so the server reads the page only then.

mod common;

use common::{Outcome, PATIENCE, run};
use kiban_rdma_runtime::{
    Access, Address, Connect, Context, Listener, QpOptions, QpState, Remote, Status, Wr,
};

const USAGE: &str = "\
rdma_write [--over LOWER]                   both ends here
rdma_write serve ADDRESS [--over LOWER]     the page
rdma_write connect ADDRESS [--over LOWER]   who writes into it
LOWER: tcp, tcp:ADDRESS, efe:ADDRESS, efe-raw:INTERFACE";

const GREETING: &[u8] = b"hello, across the wire";

fn serve(context: &Context, listener: &Listener) -> Outcome {
    let pd = context.alloc_pd()?;
    let cq = context.create_cq(16)?;
    let qp = pd.create_qp(&cq, &cq, QpOptions::default())?;
    let page = pd.reg_mr(4096, Access { remote_write: true, ..Access::LOCAL })?;

    // Receives must be posted before messages arrive. The message is empty, so the receive has no memory.
    qp.post_recv(1, &[])?;
    let request = listener.request(PATIENCE)?;
    let options = Connect { private_data: page.remote().to_bytes().into(), ..Connect::default() };
    let connection = request.accept(&qp, &options)?;

    let told = cq.wait(PATIENCE)?;
    assert_eq!((told.id, told.status, told.bytes), (1, Status::Success, 0));
    let text = page.to_vec(100, GREETING.len());
    println!("server: bytes from 100: {:?}", String::from_utf8_lossy(&text));
    assert_eq!(text, GREETING);
    connection.wait_disconnected(PATIENCE)?;
    assert_eq!(context.counters().writes_in, 1);
    Ok(())
}

fn connect(context: &Context, server: Address, _: &[String]) -> Outcome {
    let pd = context.alloc_pd()?;
    let cq = context.create_cq(16)?;
    let qp = pd.create_qp(&cq, &cq, QpOptions::default())?;
    let source = pd.reg_mr(4096, Access::NONE)?;
    source.write(0, GREETING);

    let connection = qp.connect(server, &Connect::default(), PATIENCE)?;
    let page =
        Remote::from_bytes(connection.private_data()).ok_or("the server did not send the page's address")?;

    // Only the second of the two is signalled, because work on one queue pair completes in order.
    qp.post_send(Wr::write(1, source.slice(0, GREETING.len()), page.at(100)).unsignalled())?;
    qp.post_send(Wr::send_inline(2, b""))?;
    let done = cq.wait(PATIENCE)?;
    println!("client: wrote {} bytes, {}", GREETING.len(), done.status);
    assert_eq!((done.id, done.status), (2, Status::Success));

    connection.disconnect();
    connection.wait_disconnected(PATIENCE)?;
    assert_eq!(qp.state(), QpState::Error, "over, as everything ends; reset makes it new");
    Ok(())
}

fn main() -> Outcome {
    run(USAGE, serve, connect)
}

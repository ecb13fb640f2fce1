//! Send and receive: messages with boundaries, into memory that the receiver has posted.
//!
//! `cargo run --release -p kiban-rdma-runtime --example send_recv` runs both ends in one process. To use two
//! hosts, run it with `serve 0.0.0.0:7471` on one and with `connect HOST:7471` on the other. The option
//! `--over efe:ADDRESS` replaces TCP with the EFE-like transport. See `--help`.
//!
//! The server reverses each message and sends it back. A message without a receive would end the connection,
//! so each side posts receives early enough: the server replaces a receive before it answers, the client
//! posts one for each answer before it sends.

mod common;

use common::{Outcome, PATIENCE, run};
use kiban_rdma_runtime::{Access, Address, Connect, Context, Kind, Listener, QpOptions, Status, Wr};

const USAGE: &str = "\
send_recv [--over LOWER]                             both ends here
send_recv serve ADDRESS [--over LOWER]               who turns words round
send_recv connect ADDRESS [WORD ...] [--over LOWER]  who asks
LOWER: tcp, tcp:ADDRESS, efe:ADDRESS, efe-raw:INTERFACE";

/// Bytes of the longest message.
const ROOM: usize = 256;
/// Number of posted receives: the maximum number of messages that may be in transit.
const POSTED: usize = 4;

fn serve(context: &Context, listener: &Listener) -> Outcome {
    let pd = context.alloc_pd()?;
    // Use two queues, so that each has only one kind of completion.
    let (sent, heard) = (context.create_cq(16)?, context.create_cq(16)?);
    let qp = pd.create_qp(&sent, &heard, QpOptions::default())?;
    let rooms = pd.reg_mr(POSTED * ROOM, Access::LOCAL)?;
    for number in 0..POSTED {
        qp.post_recv(number as u64, &[rooms.slice(number * ROOM, ROOM)])?;
    }
    let connection = listener.request(PATIENCE)?.accept(&qp, &Connect::default())?;
    let mut messages = 0;
    loop {
        let message = heard.wait(PATIENCE)?;
        if message.status == Status::Flushed {
            // The connection has ended: the remaining receives were flushed.
            break;
        }
        assert_eq!((message.status, message.kind), (Status::Success, Kind::Receive));
        let at = message.id as usize * ROOM;
        let mut text = rooms.to_vec(at, message.bytes as usize);
        text.reverse();
        qp.post_recv(message.id, &[rooms.slice(at, ROOM)])?;
        // Short answers are inline in the work request and need no memory.
        qp.post_send(Wr::send_inline(messages, &text))?;
        assert_eq!(sent.wait(PATIENCE)?.status, Status::Success);
        messages += 1;
    }
    connection.wait_disconnected(PATIENCE)?;
    println!("server: {messages} messages");
    assert!(messages > 0);
    Ok(())
}

fn connect(context: &Context, server: Address, words: &[String]) -> Outcome {
    let pd = context.alloc_pd()?;
    let (sent, heard) = (context.create_cq(16)?, context.create_cq(16)?);
    let qp = pd.create_qp(&sent, &heard, QpOptions::default())?;
    let room = pd.reg_mr(ROOM, Access::LOCAL)?;
    let connection = qp.connect(server, &Connect::default(), PATIENCE)?;

    let own = ["stressed", "drawer", "level"].map(String::from);
    for word in if words.is_empty() { &own[..] } else { words } {
        qp.post_recv(1, &[room.all()])?;
        qp.post_send(Wr::send_inline(2, word.as_bytes()))?;
        assert_eq!(sent.wait(PATIENCE)?.status, Status::Success);
        let answer = heard.wait(PATIENCE)?;
        assert_eq!((answer.id, answer.status), (1, Status::Success));
        let text = room.to_vec(0, answer.bytes as usize);
        println!("client: {word}, {}", String::from_utf8_lossy(&text));
        assert!(text.iter().eq(word.as_bytes().iter().rev()));
    }
    connection.disconnect();
    connection.wait_disconnected(PATIENCE)?;
    Ok(())
}

fn main() -> Outcome {
    run(USAGE, serve, connect)
}

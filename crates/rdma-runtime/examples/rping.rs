//! The exchange of rdma-core's `rping`; the other end may use any iWARP card, or Linux's soft-iWARP (siw).
//!
//! `cargo run --release -p kiban-rdma-runtime --example rping` runs both ends in one process. Against the
//! real program on another host:
//!
//! ```text
//! rping serve 0.0.0.0:7471                    there: rping -c -a HOST -p 7471 -C 10 -V
//! rping connect HOST:7471 10 60000 crc        there: rping -s -a 0.0.0.0 -p 7471
//! ```
//!
//! Buffers   the client has two: a source filled with letters, and a sink.
//! Rounds    the client sends the source's address; the server reads the source and acknowledges. Then the
//!           client sends the sink's address; the server writes the data that it has read to the sink and
//!           acknowledges. Finally, the client compares the two buffers.
//! Messages  an address message has 16 bytes in network byte order: 8 for the address, 4 for the key, 4 for
//!           the length. The server's messages have the same length; their contents are ignored.
//! Omitted   several clients. With the real `rping` at the other end, only TCP works, because it supports
//!           only iWARP.

mod common;

use common::{Outcome, PATIENCE, run};
use kiban_rdma_runtime::{
    Access, Address, Completion, Connect, Context, Cq, CrcUse, Error, Kind, Listener, Mr, Pd, Qp, QpOptions,
    Remote, Status, Wr,
};

const USAGE: &str = "\
rping [--over LOWER]                                            both ends here
rping serve ADDRESS [--over LOWER]                              for one client
rping connect ADDRESS [ROUNDS [BYTES [crc]]] [--over LOWER]     3 rounds of 64 bytes unless said
LOWER: tcp, tcp:ADDRESS, efe:ADDRESS, efe-raw:INTERFACE";

/// Bytes of a message.
const MESSAGE: usize = 16;
/// The maximum number of bytes that a server reads at once; rping uses less than 64 KiB.
const BYTES_MAX: usize = 1 << 16;
/// Ids of work: a receive, and everything else.
const RECEIVE: u64 = 0;
const WORK: u64 = 1;

/// The location of a buffer, as sent to the peer.
fn tell(mr: &Mr) -> [u8; MESSAGE] {
    let mut message = [0; MESSAGE];
    message[..8].copy_from_slice(&mr.address().to_be_bytes());
    message[8..12].copy_from_slice(&mr.rkey().to_be_bytes());
    message[12..].copy_from_slice(&(mr.len() as u32).to_be_bytes());
    message
}

fn told(message: &[u8]) -> Option<(Remote, usize)> {
    let (address, rest) = message.split_first_chunk()?;
    let (rkey, rest) = rest.split_first_chunk()?;
    let (length, _) = rest.split_first_chunk()?;
    let remote = Remote { rkey: u32::from_be_bytes(*rkey), address: u64::from_be_bytes(*address) };
    Some((remote, u32::from_be_bytes(*length) as usize))
}

/// One end of the exchange: a queue pair with room for the peer's next message.
struct End {
    pd: Pd,
    cq: Cq,
    qp: Qp,
    room: Mr,
}

impl End {
    fn new(context: &Context) -> Result<End, Error> {
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(16)?;
        let qp = pd.create_qp(&cq, &cq, QpOptions::default())?;
        let room = pd.reg_mr(MESSAGE, Access::LOCAL)?;
        // Post before connecting: in iWARP, a message cannot wait for a receive (RFC 5040 §5.3).
        qp.post_recv(RECEIVE, &[room.all()])?;
        Ok(End { pd, cq, qp, room })
    }

    /// Returns the peer's next message and posts a receive for the one after it; `None` if the peer has
    /// disconnected.
    fn hear(&self) -> Result<Option<Vec<u8>>, Error> {
        let Completion { id, status, bytes, .. } = self.cq.wait(PATIENCE)?;
        match status {
            Status::Success => {
                assert_eq!((id, bytes as usize), (RECEIVE, MESSAGE), "a message and nothing else");
                let message = self.room.to_vec(0, MESSAGE);
                self.qp.post_recv(RECEIVE, &[self.room.all()])?;
                Ok(Some(message))
            }
            _ => Ok(None),
        }
    }

    /// Sends a message without waiting for its completion, because the peer's answer confirms it.
    fn say(&self, message: &[u8; MESSAGE]) -> Result<(), Error> {
        self.qp.post_send(Wr::send_inline(WORK, message).unsignalled())
    }
}

fn serve(context: &Context, listener: &Listener) -> Outcome {
    let end = End::new(context)?;
    let data = end.pd.reg_mr(BYTES_MAX, Access::LOCAL)?;
    // Wait indefinitely: the other host may have to start first.
    let request = loop {
        match listener.request(PATIENCE) {
            Err(Error::Timeout) => continue,
            request => break request?,
        }
    };
    let connection = request.accept(&end.qp, &Connect::default())?;
    let mut rounds = 0;
    while let Some(message) = end.hear()? {
        let (source, length) = told(&message).ok_or("the client did not send the source's address")?;
        if length > BYTES_MAX {
            return Err(format!("{length} bytes requested, but the maximum is {BYTES_MAX}").into());
        }
        end.qp.post_send(Wr::read(WORK, data.slice(0, length), source))?;
        let done = end.cq.wait(PATIENCE)?;
        assert_eq!((done.status, done.kind), (Status::Success, Kind::Read));
        end.say(&[0; MESSAGE])?;

        let message = end.hear()?.ok_or("the client disconnected in the middle of a round")?;
        let (sink, room) = told(&message).ok_or("the client did not send the sink's address")?;
        // The peer relies on this order: a Send confirms that earlier Writes are in place (RFC 5040 §5.5).
        end.qp.post_send(Wr::write(WORK, data.slice(0, length.min(room)), sink).unsignalled())?;
        end.say(&[0; MESSAGE])?;
        rounds += 1;
        println!("server: round {rounds}, {length} bytes");
    }
    connection.wait_disconnected(PATIENCE)?;
    assert!(rounds > 0, "a client asked for something");
    Ok(())
}

/// Returns the source's contents in a round. As in rping, each round begins with a different letter, so that
/// an old round is not mistaken for a new one. The contents end with a zero byte, because the real server
/// treats them as a C string.
fn letters(round: usize, bytes: usize) -> Vec<u8> {
    let letters = (b'A'..=b'z').cycle().skip(round % 58);
    letters.take(bytes.saturating_sub(1)).chain([0]).take(bytes).collect()
}

fn connect(context: &Context, server: Address, words: &[String]) -> Outcome {
    let number = |at: usize, otherwise| words.get(at).map_or(Ok(otherwise), |word| word.parse());
    let (rounds, bytes): (usize, usize) = (number(0, 3)?, number(1, 64)?);
    let crc = match words.get(2).map(String::as_str) {
        None => CrcUse::Off,
        Some("crc") => CrcUse::Required,
        Some(_) => return Err(format!("unrecognized arguments\n{USAGE}").into()),
    };

    let end = End::new(context)?;
    let source = end.pd.reg_mr(bytes, Access { remote_read: true, ..Access::LOCAL })?;
    let sink = end.pd.reg_mr(bytes, Access { remote_write: true, ..Access::LOCAL })?;
    let connection = end.qp.connect(server, &Connect { crc, ..Connect::default() }, PATIENCE)?;
    for round in 0..rounds {
        let sent = letters(round, bytes);
        source.write(0, &sent);
        for buffer in [&source, &sink] {
            end.say(&tell(buffer))?;
            end.hear()?.ok_or("the server disconnected in the middle of a round")?;
        }
        assert!(sink.to_vec(0, bytes) == sent, "round {round}: what came back is what was there");
        println!("client: round {}, {bytes} bytes came back", round + 1);
    }
    connection.disconnect();
    connection.wait_disconnected(PATIENCE)?;
    Ok(())
}

fn main() -> Outcome {
    run(USAGE, serve, connect)
}

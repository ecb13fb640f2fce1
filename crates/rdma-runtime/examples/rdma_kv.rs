//! A key-value store with one-sided gets: a client reads the server's table with RDMA Read, without
//! involving the server's program.
//!
//! `cargo run --release -p kiban-rdma-runtime --example rdma_kv` runs a server and two clients in one
//! process. As two processes:
//!
//! ```text
//! rdma_kv serve 0.0.0.0:7471
//! rdma_kv connect HOST:7471 put colour green
//! rdma_kv connect HOST:7471 get colour
//! rdma_kv connect HOST:7471 stop
//! ```
//!
//! Table     buckets of four slots. The key determines the bucket, so a get is one RDMA Read of a bucket.
//! Put       a client sends a message to the server, which answers it. Only the server writes to the table.
//! Torn      a read can overlap a put. Each slot begins with a checksum of the rest of the slot; if it is
//!           wrong, the client repeats the read. A version number in each slot counts its puts.
//! Omitted   deletion; growing tables; protection from hostile peers that have a key for this memory.

mod common;

use common::{Outcome, PATIENCE, run};
use kiban_rdma_runtime::{
    Access, Address, Connect, Connection, Context, Cq, Error, Listener, Mr, Pd, Qp, QpOptions, Remote,
    Status, Wr,
};
use std::sync::Mutex;

const USAGE: &str = "\
rdma_kv [--over LOWER]                              a server and two clients here
rdma_kv serve ADDRESS [--over LOWER]                the table, until a client stops it
rdma_kv connect ADDRESS [--over LOWER]              the story that the first form plays
rdma_kv connect ADDRESS put KEY VALUE | get KEY | stop
LOWER: tcp, tcp:ADDRESS, efe:ADDRESS, efe-raw:INTERFACE";

const BUCKETS: usize = 256;
const SLOTS: usize = 4;
const SLOT_BYTES: usize = 1024;
const BUCKET_BYTES: usize = SLOTS * SLOT_BYTES;
/// Bytes before the key: checksum 8, version 8, key length 2, value length 2; network byte order.
const HEAD_BYTES: usize = 20;

/// FNV-1a: gives the same hash in every program, but does not protect against maliciously chosen keys.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn bucket_of(key: &[u8]) -> usize {
    (hash(key) % BUCKETS as u64) as usize * BUCKET_BYTES
}

/// The contents of a slot.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Entry {
    version: u64,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// The result of parsing a slot.
enum Slot {
    Empty,
    Torn,
    Holds(Entry),
}

impl Entry {
    fn write(&self) -> Vec<u8> {
        let lengths = [self.key.len() as u16, self.value.len() as u16].map(u16::to_be_bytes).concat();
        let rest = [&self.version.to_be_bytes()[..], &lengths, &self.key, &self.value].concat();
        [&hash(&rest).to_be_bytes()[..], &rest].concat()
    }

    fn read(slot: &[u8]) -> Slot {
        let number = |at: usize, bytes: usize| {
            slot[at..at + bytes].iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
        };
        let (version, key_bytes, value_bytes) =
            (number(8, 8), number(16, 2) as usize, number(18, 2) as usize);
        let end = HEAD_BYTES + key_bytes + value_bytes;
        if slot[..HEAD_BYTES].iter().all(|&byte| byte == 0) {
            return Slot::Empty;
        }
        if end > slot.len() || number(0, 8) != hash(&slot[8..end]) {
            return Slot::Torn;
        }
        let (key, value) = slot[HEAD_BYTES..end].split_at(key_bytes);
        Slot::Holds(Entry { version, key: key.to_vec(), value: value.to_vec() })
    }
}

// ---- the server

/// The table. The server's threads use its lock; clients read without it.
struct Table(Mutex<Mr>);

impl Table {
    /// Stores an entry. Returns false if the bucket is full.
    fn put(&self, key: &[u8], value: &[u8]) -> bool {
        let mr = self.0.lock().expect("no thread panics with it");
        let bucket = bucket_of(key);
        if HEAD_BYTES + key.len() + value.len() > SLOT_BYTES {
            return false;
        }
        for at in (0..SLOTS).map(|slot| bucket + slot * SLOT_BYTES) {
            let version = match Entry::read(&mr.to_vec(at, SLOT_BYTES)) {
                Slot::Empty => 1,
                Slot::Holds(entry) if entry.key == key => entry.version + 1,
                _ => continue,
            };
            mr.write(at, &Entry { version, key: key.to_vec(), value: value.to_vec() }.write());
            return true;
        }
        false
    }
}

fn serve(context: &Context, listener: &Listener) -> Outcome {
    let pd = context.alloc_pd()?;
    let mr = pd.reg_mr(BUCKETS * BUCKET_BYTES, Access { remote_read: true, ..Access::LOCAL })?;
    let shown = mr.remote();
    let table = Table(Mutex::new(mr));
    std::thread::scope(|threads| {
        loop {
            let request = match listener.request(PATIENCE) {
                Ok(request) => request,
                Err(Error::Timeout) => continue,
                // A client has sent the stop message.
                Err(Error::Closed) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            // Each client gets its own thread, completion queue and queue pair. All share one protection
            // domain and one table.
            let (table, pd) = (&table, &pd);
            threads.spawn(move || {
                let cq = pd.context().create_cq(16)?;
                let qp = pd.create_qp(&cq, &cq, QpOptions::default())?;
                let room = pd.reg_mr(SLOT_BYTES, Access::LOCAL)?;
                qp.post_recv(0, &[room.all()])?;
                let options = Connect { private_data: shown.to_bytes().into(), ..Connect::default() };
                let _connection = request.accept(&qp, &options)?;
                answer(table, &cq, &qp, &room)
            });
        }
    })
}

/// Handles one message: the key's length (2 bytes), the key, the value; an empty message stops the server.
/// The answer is one byte, 1 for success.
fn answer(table: &Table, cq: &Cq, qp: &Qp, room: &Mr) -> Result<(), Error> {
    loop {
        let message = match cq.wait(PATIENCE) {
            Ok(message) if message.status == Status::Success => message,
            Err(Error::Timeout) => continue,
            // The connection or the server has ended.
            _ => return Ok(()),
        };
        let text = room.to_vec(0, message.bytes as usize);
        let Some((&length, rest)) = text.split_first_chunk() else {
            qp.context().close();
            return Ok(());
        };
        let stored = rest
            .split_at_checked(u16::from_be_bytes(length).into())
            .is_some_and(|(key, value)| table.put(key, value));
        qp.post_recv(0, &[room.all()])?;
        qp.post_send(Wr::send_inline(1, &[stored.into()]).unsignalled())?;
    }
}

// ---- a client

struct Client {
    cq: Cq,
    qp: Qp,
    room: Mr,
    table: Remote,
    connection: Connection,
    /// Number of reads that overlapped a put.
    torn: u64,
}

impl Client {
    fn new(context: &Context, server: Address) -> Result<Client, Error> {
        let pd: Pd = context.alloc_pd()?;
        let cq = context.create_cq(16)?;
        let qp = pd.create_qp(&cq, &cq, QpOptions::default())?;
        let room = pd.reg_mr(BUCKET_BYTES, Access::LOCAL)?;
        let connection = qp.connect(server, &Connect::default(), PATIENCE)?;
        let table = Remote::from_bytes(connection.private_data()).unwrap_or_default();
        Ok(Client { cq, qp, room, table, connection, torn: 0 })
    }

    fn done(&self) -> Result<(), Error> {
        let done = self.cq.wait(PATIENCE)?;
        assert_eq!(done.status, Status::Success, "{}", done.status);
        Ok(())
    }

    /// Repeats the read until the slots are consistent.
    fn get(&mut self, key: &[u8]) -> Result<Option<Entry>, Error> {
        let bucket = self.table.at(bucket_of(key) as u64);
        'look: loop {
            self.qp.post_send(Wr::read(1, self.room.all(), bucket))?;
            self.done()?;
            for slot in self.room.to_vec(0, BUCKET_BYTES).chunks_exact(SLOT_BYTES) {
                match Entry::read(slot) {
                    // The torn slot may be the one with this key.
                    Slot::Torn => {
                        self.torn += 1;
                        continue 'look;
                    }
                    Slot::Holds(entry) if entry.key == key => return Ok(Some(entry)),
                    _ => {}
                }
            }
            return Ok(None);
        }
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<bool, Error> {
        let text = [&(key.len() as u16).to_be_bytes()[..], key, value].concat();
        assert!(text.len() <= SLOT_BYTES, "too long for a slot");
        self.room.write(0, &text);
        // The answer is placed after the request: a bucket is longer than a slot.
        self.qp.post_recv(2, &[self.room.slice(SLOT_BYTES, 1)])?;
        self.qp.post_send(Wr::send(1, self.room.slice(0, text.len())).unsignalled())?;
        self.done()?;
        Ok(self.room.to_vec(SLOT_BYTES, 1) == [1])
    }

    /// Stops the server, which ends all its connections.
    fn stop(self) -> Result<(), Error> {
        self.qp.post_send(Wr::send_inline(3, b"").unsignalled())?;
        self.connection.wait_disconnected(PATIENCE)
    }
}

fn connect(context: &Context, server: Address, words: &[String]) -> Outcome {
    let mut client = Client::new(context, server)?;
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => return story(context, server, client),
        ["put", key, value] if key.len() + value.len() + HEAD_BYTES <= SLOT_BYTES => {
            println!("{}", if client.put(key.as_bytes(), value.as_bytes())? { "stored" } else { "no room" });
        }
        ["get", key] => match client.get(key.as_bytes())? {
            Some(entry) => println!("{} (version {})", String::from_utf8_lossy(&entry.value), entry.version),
            None => println!("not found"),
        },
        ["stop"] => client.stop()?,
        _ => return Err(format!("unrecognized arguments\n{USAGE}").into()),
    }
    Ok(())
}

/// One client puts as fast as it can while another reads the same key: each value that is read is whole, and
/// versions never decrease.
fn story(context: &Context, server: Address, client: Client) -> Outcome {
    const PUTS: u64 = 500;
    let key = b"the weather";
    // Few reads overlap a put, so check here that a torn slot is detected.
    let [old, new] =
        [1, 2].map(|n| Entry { version: n, key: key.to_vec(), value: vec![n as u8; 900] }.write());
    assert!(matches!(Entry::read(&[&new[..400], &old[400..]].concat()), Slot::Torn));
    assert!(matches!(Entry::read(&new), Slot::Holds(_)));
    let mut reader = Client::new(context, server)?;
    assert_eq!(reader.get(key)?, None);
    std::thread::scope(|threads| {
        let writing = threads.spawn(|| -> Result<(), Error> {
            for number in 1..=PUTS {
                // All bytes of a value are equal, so that a mixture would be detected.
                assert!(client.put(key, &[number as u8; 900])?, "there is room");
            }
            Ok(())
        });
        let (mut gets, mut last) = (0, 0);
        loop {
            // Check before reading: if the writer has finished, this read must return the last put.
            let is_written = writing.is_finished();
            gets += 1;
            if let Some(entry) = reader.get(key)? {
                assert!(entry.value == [entry.version as u8; 900], "a mixture of two values");
                assert!(entry.version >= last, "{} after {last}", entry.version);
                last = entry.version;
            }
            if last == PUTS || is_written && gets > 2 * PUTS {
                break;
            }
        }
        writing.join().expect("the writer does not panic")?;
        assert_eq!(last, PUTS);
        println!(
            "client: {PUTS} puts; {gets} concurrent gets, {} retried because a put was in progress",
            reader.torn
        );
        Outcome::Ok(())
    })?;
    Ok(client.stop()?)
}

fn main() -> Outcome {
    run(USAGE, serve, connect)
}

//! A peer sends half a frame and then nothing more. Payload received so far is placed if that is allowed,
//! and memory can be deregistered without the peer's cooperation.
//!
//! Without a CRC, the long frame is being placed in that memory, so the connection ends as soon as the NIC
//! next processes it. With a CRC, the frame is not validated until it is complete.

use crate::pair::{LONG, Side, Watch};
use kiban_rdma::iwarp::mpa;
use kiban_rdma_runtime::{Access, Address, Connect, CrcUse, Status};
use std::io::{Read, Write};
use std::net::TcpStream;

/// Builds an RDMA Write in one frame with a correct CRC.
fn write_frame(stag: u32, address: u64, payload: &[u8], crc: bool) -> Vec<u8> {
    let mut frame = Vec::new();
    let start = mpa::begin(&mut frame, 14 + payload.len());
    // DDP: tagged, last, version 1 (RFC 5041 §4.2). RDMAP: version 1, Write (RFC 5040 §4.3).
    frame.extend([0xc1, 0x40]);
    frame.extend(stag.to_be_bytes());
    frame.extend(address.to_be_bytes());
    frame.extend_from_slice(payload);
    mpa::end(&mut frame, start, crc);
    frame
}

#[test]
fn memory_deregistered_in_mid_frame_receives_no_further_byte() {
    for crc in [CrcUse::Off, CrcUse::Wanted] {
        let side = Side::tcp();
        let listener = side.listen(&Connect::default());
        let Address::Ip(address) = listener.address() else { panic!("an IP address") };
        let target = side.pd.reg_mr(60_000, Access::ALL).expect("room");
        let mut outsider = TcpStream::connect(address).expect("there is a listener");
        outsider.set_read_timeout(Some(LONG)).expect("a timeout");
        let config = mpa::Config { crc, ..mpa::Config::default() };
        let mut initiator = mpa::Initiator::new(&config, 1, 1, b"").expect("short");
        outsider.write_all(initiator.request()).expect("room");
        let (connection, _) = side.accept(&listener, &Connect::default());
        let mut reply = [0; 24];
        outsider.read_exact(&mut reply).expect("a reply");
        let Ok(mpa::Answer::Agreed(agreed)) = initiator.take(&reply) else { panic!("{reply:?}") };
        assert_eq!(agreed.crc, crc == CrcUse::Wanted);

        let (rkey, place) = (target.rkey(), target.address());
        let whole = write_frame(rkey, place, &[1; 100], agreed.crc);
        let long = write_frame(rkey, place, &[2; 60_000], agreed.crc);
        let (half, rest) = long.split_at(30_000);
        outsider.write_all(&[&whole[..], half].concat()).expect("room");
        // The first frame is placed completely. Of the second frame, all received payload is placed if there
        // is no CRC, and otherwise none.
        let here = if agreed.crc { 100 } else { 100 + 30_000 - 2 - 14 };
        let begun = Watch::start();
        let moved = || side.context.counters().placed_bytes + side.context.counters().direct_bytes;
        while moved() < here {
            assert!(begun.elapsed() < LONG, "{crc:?}: {} bytes", moved());
            side.context.progress();
        }
        assert_eq!(moved(), here, "{crc:?}");
        let seen = target.to_vec(0, 60_000);
        assert_eq!(
            seen.iter().filter(|&&byte| byte == 2).count() as u64,
            if agreed.crc { 0 } else { here - 100 }
        );
        assert_eq!(seen.iter().filter(|&&byte| byte == 1).count(), if agreed.crc { 100 } else { 0 });
        side.qp.post_recv(5, &[]).expect("room");
        // The peer sends the rest only after this call has returned.
        target.deregister().expect("nothing looks at it");
        if agreed.crc {
            // The frame has not been validated yet.
            assert!(side.cq.poll().is_none(), "the connection stands");
            outsider.write_all(rest).expect("room");
        }
        assert_eq!(side.cq.wait(LONG).expect("told").status, Status::Flushed);
        connection.wait_disconnected(LONG).expect("over");
        assert_eq!((side.context.counters().bad_stag, moved()), (1, here), "{crc:?}");
        // The Terminate gives the reason: DDP, tagged buffer, invalid STag (RFC 5041 §7).
        let mut last = Vec::new();
        let _ = outsider.read_to_end(&mut last);
        assert_eq!(last.get(3), Some(&0x47), "{crc:?}: a Terminate in {last:x?}");
        assert_eq!(last.get(2 + 18..2 + 20), Some(&[0x11, 0x00][..]), "{crc:?}: {last:x?}");
        // Bytes sent now are ignored, if they can be sent at all.
        let _ = outsider.write_all(rest);
        side.context.progress();
        assert_eq!(moved(), here, "{crc:?}");
    }
}

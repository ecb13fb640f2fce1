//! Input that arrives byte by byte.

use kiban_base::Bytes;
use kiban_osi::network::Indication;
use kiban_osi::stack::stream::Stream;

#[test]
fn a_tpdu_received_byte_by_byte_is_compacted() {
    let mut stream = Stream::new(65531);
    let unit: Vec<u8> = (0..65531u32).map(|byte| byte as u8).collect();
    let mut bytes = vec![3, 0, 0xff, 0xff];
    bytes.extend_from_slice(&unit);
    // Two TPKTs arrive, so that the second one starts in the middle of a read.
    bytes.extend_from_slice(&[3, 0, 0, 7, 1, 2, 3]);
    let mut units = Vec::new();
    for byte in bytes {
        stream.arrive(Bytes::copy_from_slice(&[byte]));
        while let Some(Indication::Data(unit)) = stream.poll() {
            units.push(unit);
        }
    }
    assert_eq!(units.len(), 2);
    assert!(units[0].runs().flatten().eq(&unit) && units[1].to_vec() == [1, 2, 3]);
    assert!(units[0].runs().count() < 64, "{:?}", units[0]);
}

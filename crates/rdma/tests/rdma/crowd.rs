//! Tests which connections are dropped when too many arrive at once.

use crate::fixture::station::NOW;
use kiban_base::RngKey;
use kiban_rdma::iwarp::mpa::{self, Initiator};
use kiban_rdma::nic::{CmEvent, Nic};
use kiban_rdma::rnic::{Config, StreamAction};

const MOST: usize = 8;

fn withdrawn(nic: &mut Nic) -> Vec<u32> {
    std::iter::from_fn(|| nic.poll())
        .map(|news| match news {
            CmEvent::Withdrawn { end } => end,
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn silent_connections_are_dropped_before_those_with_a_pending_request() {
    for (asking, silent, gone) in [
        // All fit.
        (3, MOST - 3, 0..0),
        // The oldest ends without a request are dropped, one for each end above the limit.
        (3, MOST - 3 + 1, 3..4),
        (3, 100, 3..3 + 100 - (MOST - 3)),
        (0, MOST + 2, 0..2),
        // If every end has received a request, the oldest request is dropped.
        (MOST, 1, 0..1),
        (MOST + 2, 0, 0..2),
    ] {
        let mut nic = Nic::new(Config { waiting_max: MOST, ..Config::default() }, RngKey::for_simulation(1));
        let config = mpa::Config::default();
        let request = Initiator::new(&config, 1, 1, b"").expect("short").request().to_vec();
        let (mut ends, mut left) = (Vec::new(), Vec::new());
        for at in 0..asking + silent {
            let end = nic.incoming(&config, 1, NOW).expect("room");
            left.extend(withdrawn(&mut nic));
            ends.push(end);
            if at < asking {
                nic.arrive(end, &request, NOW);
                assert!(matches!(nic.poll(), Some(CmEvent::ConnectRequest(asked)) if asked.end == end));
            }
        }
        assert_eq!(left, ends[gone], "{asking} ask, {silent} do not");
        for end in left {
            assert_eq!(nic.stream_action(end), StreamAction::Abort);
            nic.forget(None, end, NOW);
        }
        assert!(nic.ends() <= MOST);
    }
}

//! Silence (RFC 9293 §3.8.3).

use crate::common::cable::Nature;
use crate::common::ms;
use crate::common::world::{Role, World};
use kiban_tcpip::tcp::{Config, Reason};

#[test]
fn a_silent_peer_causes_negative_advice_once() {
    // RFC 9293 §3.8.3, R1: IP gets negative advice about the route before the session ends.
    let config = Config { syn_retries: 3, ..Config::default() };
    let nature = Nature { delay: ms(5), ..Nature::default() };
    let new = || World::new([config.clone(), config.clone()], [nature; 2], [Default::default(); 2], 1);
    let mut world = new();
    world.cables[0].nature.loss = 1.0;
    world.converse(Role::eager(0), Role::eager(0));
    world.run_until(|world| world.advice == [0]);
    assert_eq!(world.apps[0][0].gone, None);
    while world.step().unwrap() {}
    assert_eq!((&world.advice[..], world.apps[0][0].gone), (&[0][..], Some(Reason::TimedOut)));

    let mut world = new();
    let talker = Role { write_max: 1000, write_every: ms(1000), ..Role::eager(5000) };
    world.converse(talker.after_peer(), Role::eager(0).after_peer());
    world.run_until(|world| !world.apps[0][1].got.is_empty());
    world.cables[0].nature.loss = 1.0;
    while world.step().unwrap() {}
    assert_eq!((&world.advice[..], world.apps[0][0].gone), (&[0][..], Some(Reason::TimedOut)));
    world.stations[0].check_home();
}

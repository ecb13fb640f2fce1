//! SYN cookies (RFC 4987 §3.6): a SYN costs no memory until the handshake is complete.
//!
//! Principle        the state that a SYN would create is encoded in our initial sequence number and comes
//!                  back in the ACK (Bernstein 1996).
//! Cookie           hash(4-tuple) + the peer's initial sequence number + slot · 2²⁴ + (hash(4-tuple, slot,
//!                  peer's number) + size) mod 2²⁴. A slot is 64 seconds, and a cookie is valid for two to
//!                  three slots; `size` is the index of one of eight MSS values. A guess succeeds with
//!                  probability 2⁻²⁷.
//! Timestamps       if the peer uses them, the low five bits of our timestamp encode the other options: the
//!                  window shift (15: none) and SACK. Without timestamps neither is offered.
//! Limits           if the last ACK is lost and the protocol has our side send first, the peer waits until
//!                  its own timeout.

use super::secret::Secret;
use super::timestamps;
use crate::tcp::Config;
use crate::wire::tcp::{Flags, Header, Options, Sequence, Timestamps};
use core::hash::Hasher;
use core::net::SocketAddr;
use core::time::Duration;
use kiban_base::Instant;

/// MSS values that a cookie can encode, bytes; the peer's MSS is rounded down to one of them.
const SIZES: [u16; 8] = [64, 536, 1220, 1440, 1460, 4312, 8192, 9140];
const SLOT: Duration = Duration::from_secs(64);
/// Maximum age of a valid cookie, slots.
const SLOTS_MAX: u32 = 2;
/// How long after the SYN-ACK a cookie remains valid.
pub(crate) const LIFE: Duration = SLOT.saturating_mul(SLOTS_MAX + 1);
const LOW: u32 = 0x00ff_ffff;
/// Bits of the timestamp that encode the options.
const OPTION_BITS: u32 = 0x1f;
const NO_SHIFT: u32 = 15;

/// A 4-tuple: our address and port, then the peer's.
type FourTuple = (SocketAddr, SocketAddr);

fn slot(now: Instant) -> u32 {
    (now.as_nanos() / SLOT.as_nanos() as u64) as u32
}

fn hash(secret: &Secret, name: FourTuple, more: &[u32]) -> u32 {
    let mut hasher = secret.tuple_hasher(b'c', name.0, name.1);
    more.iter().for_each(|word| hasher.write(&word.to_be_bytes()));
    hasher.finish() as u32
}

/// Returns the cookie for a SYN.
fn cookie_isn(secret: &Secret, name: FourTuple, syn: &Header, now: Instant) -> Sequence {
    let mss = syn.options.mss.unwrap_or(Config::mss_unsaid(name.1));
    let size = SIZES.iter().rposition(|size| *size <= mss).unwrap_or(0) as u32;
    let slot = slot(now);
    let low = hash(secret, name, &[slot, syn.sequence.0]).wrapping_add(size) & LOW;
    Sequence(hash(secret, name, &[]).wrapping_add(syn.sequence.0).wrapping_add(slot << 24).wrapping_add(low))
}

/// Returns the SYN-ACK for a SYN.
pub(crate) fn syn_ack(
    secret: &Secret,
    config: &Config,
    name: FourTuple,
    syn: &Header,
    now: Instant,
) -> Header {
    let agreed = syn.options.timestamps.filter(|_| config.timestamps).map(|theirs| {
        let shift = syn.options.window_shift.filter(|_| config.window_scaling);
        let sack = config.sack && syn.options.sack_permitted;
        (theirs, shift, sack)
    });
    let timestamps = agreed.map(|(theirs, shift, sack)| {
        let said = shift.map_or(NO_SHIFT, |shift| u32::from(shift.min(14))) << 1 | u32::from(sack);
        Timestamps { value: clock(secret, name, said, now), echo: theirs.value }
    });
    Header {
        source_port: name.0.port(),
        target_port: name.1.port(),
        sequence: cookie_isn(secret, name, syn, now),
        acknowledgment: syn.sequence + 1,
        flags: Flags::SYN | Flags::ACK,
        window: window(config),
        urgent: 0,
        options: Options {
            mss: Some(config.mss_to(name.1)),
            window_shift: agreed.and_then(|(_, shift, _)| shift).map(|_| config.window_shift()),
            sack_permitted: agreed.is_some_and(|(_, _, sack)| sack),
            timestamps,
            ..Options::NONE
        },
    }
}

/// Returns the window that the SYN-ACK offers.
pub(crate) fn window(config: &Config) -> u16 {
    config.receive_buffer_bytes.min(0xffff) as u16
}

/// Returns a timestamp, not later than now, whose low bits are `said` (the encoded options).
fn clock(secret: &Secret, name: FourTuple, said: u32, now: Instant) -> u32 {
    let clock = timestamps::value(0, now);
    let marked = clock & !OPTION_BITS | said;
    let marked = if marked > clock { marked.wrapping_sub(OPTION_BITS + 1) } else { marked };
    secret.stamp_offset(name.0, name.1).wrapping_add(marked)
}

/// Returns the SYN that an ACK answers, as far as the cookie encodes it; `None` if the cookie is invalid.
pub(crate) fn decode(
    secret: &Secret,
    config: &Config,
    name: FourTuple,
    ack: &Header,
    now: Instant,
) -> Option<Header> {
    let theirs = ack.sequence - 1;
    let rest = (ack.acknowledgment - 1).0.wrapping_sub(hash(secret, name, &[])).wrapping_sub(theirs.0);
    // Slots are counted modulo 256.
    let age = (slot(now).wrapping_sub(rest >> 24)) & 0xff;
    if age > SLOTS_MAX {
        return None;
    }
    let then = slot(now).wrapping_sub(age);
    let size = rest.wrapping_sub(hash(secret, name, &[then, theirs.0])) & LOW;
    let mss = *SIZES.get(size as usize)?;
    let mut options = Options { mss: Some(mss), ..Options::NONE };
    if let Some(stamps) = ack.options.timestamps.filter(|_| config.timestamps) {
        let said = stamps.echo.wrapping_sub(secret.stamp_offset(name.0, name.1)) & OPTION_BITS;
        options.timestamps = Some(stamps);
        options.sack_permitted = said & 1 == 1;
        options.window_shift = (said >> 1 != NO_SHIFT).then_some((said >> 1) as u8);
    }
    Some(Header { sequence: theirs, acknowledgment: Sequence(0), flags: Flags::SYN, options, ..*ack })
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{IpAddr, Ipv4Addr};
    use kiban_base::{RngKey, SecureRng, SimRng};
    use proptest::prelude::*;

    const NAME: FourTuple = (
        SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 80),
        SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9)), 5000),
    );

    fn ack_of(answer: &Header) -> Header {
        Header {
            source_port: 5000,
            target_port: 80,
            sequence: answer.acknowledgment,
            acknowledgment: answer.sequence + 1,
            flags: Flags::ACK,
            options: Options {
                timestamps: answer
                    .options
                    .timestamps
                    .map(|ours| Timestamps { value: ours.echo.wrapping_add(1), echo: ours.value }),
                ..Options::NONE
            },
            ..*answer
        }
    }

    proptest! {
        #[test]
        fn a_cookie_returns_the_options_of_the_syn(
            sequence: u32,
            mss in prop::option::of(0u16..),
            shift in prop::option::of(0u8..16),
            sack: bool,
            stamps in prop::option::of(any::<u32>()),
            at in 0u64..1 << 50,
            later in 0u64..120_000_000_000,
        ) {
            let (secret, config) = (Secret::new(&mut SecureRng::new(RngKey::for_simulation(3))), Config::default());
            let timestamps = stamps.map(|value| Timestamps { value, echo: 0 });
            let options =
                Options { mss, window_shift: shift, sack_permitted: sack, timestamps, ..Options::NONE };
            let syn = Header {
                source_port: 5000, target_port: 80, sequence: Sequence(sequence), acknowledgment: Sequence(0),
                flags: Flags::SYN, window: 1000, urgent: 0, options,
            };
            let now = Instant::from_nanos(at);
            let answer = syn_ack(&secret, &config, NAME, &syn, now);
            if let Some(ours) = answer.options.timestamps {
                let clock = timestamps::value(secret.stamp_offset(NAME.0, NAME.1), now);
                prop_assert!(clock.wrapping_sub(ours.value) <= 2 * OPTION_BITS, "never ahead of the clock");
            }
            let ack = ack_of(&answer);
            let later = Instant::from_nanos(at + later);
            let found = decode(&secret, &config, NAME, &ack, later).unwrap();
            prop_assert_eq!(found.sequence, syn.sequence);
            let told = found.options.mss.unwrap();
            prop_assert!(told <= mss.unwrap_or(536).max(64) && SIZES.contains(&told));
            let with_stamps = stamps.is_some();
            prop_assert_eq!(found.options.timestamps.is_some(), with_stamps);
            prop_assert_eq!(found.options.sack_permitted, with_stamps && sack);
            prop_assert_eq!(found.options.window_shift, shift.filter(|_| with_stamps).map(|shift| shift.min(14)));
            // Rejected: an expired cookie, another 4-tuple, or another initial sequence number of the peer.
            let late = Instant::from_nanos(at + LIFE.as_nanos() as u64);
            prop_assert!(decode(&secret, &config, NAME, &ack, late).is_none());
        }
    }

    #[test]
    fn a_forged_cookie_succeeds_at_most_once_in_100_000() {
        let (secret, config) =
            (Secret::new(&mut SecureRng::new(RngKey::for_simulation(3))), Config::default());
        let mut chance = SimRng::from_seed(4);
        let hits = (0..2_000_000).filter(|_| {
            let ack = Header {
                source_port: 5000,
                target_port: 80,
                sequence: Sequence(77),
                acknowledgment: Sequence(chance.draw() as u32),
                flags: Flags::ACK,
                window: 1000,
                urgent: 0,
                options: Options::NONE,
            };
            decode(&secret, &config, NAME, &ack, Instant::from_nanos(1 << 45)).is_some()
        });
        // The cookie matches 8 of 2^24 sizes in 3 of 256 slots, which is less than one guess in ten million.
        assert!(hits.count() <= 20);
    }
}

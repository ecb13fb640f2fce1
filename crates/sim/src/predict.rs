//! Prediction: attacks that compute later numbers from earlier ones, based on the common generators that are
//! not cryptographically secure.
//!
//! Purpose          a test collects a number as it appears on the wire and calls [`predicted`], which should
//!                  return `None`.
//! Method           each attack assumes one generator, computes its state from early outputs and predicts the
//!                  later ones. It succeeds if the predictions are right, whichever generator produced the
//!                  numbers.
//! Known            counters, SplitMix64 (whole outputs, halves of them, every n-th one, and any bits of it
//!                  from a small seed), linear congruential generators whatever their parameters, generators
//!                  that are linear over GF(2) (xorshift64*, xorshift128+, feedback registers), MT19937.
//! Limits           from 32 bits of each output, SplitMix64 with a large seed takes 2^32 steps
//!                  ([`splitmix_from_half`]): half a minute. The upper bits alone of an LCG or of an xorshift
//!                  generator are not attacked. Numbers from an unknown generator pass: the attacks find
//!                  mistakes, but they do not prove that a generator is secure.

/// The step of SplitMix64's state.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
/// Maximum number of draws by other users of the generator between two outputs.
const GAP_MAX: u64 = 1024;
/// Seeds below `SEEDS` count as small; at most `DRAWS_BEFORE_MAX` draws precede the first output.
const SEEDS: u64 = 4096;
const DRAWS_BEFORE_MAX: usize = 256;
/// The number of outputs that are examined, which is enough for every attack.
const OUTPUTS_MAX: usize = 4096;

type Attack = fn(&[u64], u32) -> bool;

const ATTACKS: [(&str, Attack); 7] = [
    ("a counter", is_counter),
    ("SplitMix64", |outputs, bits| bits == 64 && splitmix(outputs).is_some()),
    ("halves of SplitMix64", |outputs, bits| bits == 32 && splitmix_of_halves(outputs).is_some()),
    ("SplitMix64 from a small seed", |outputs, bits| splitmix_of_small_seed(outputs, bits).is_some()),
    ("a linear congruential generator", is_congruential),
    ("a generator linear over GF(2)", is_linear),
    ("MT19937", is_mersenne_twister),
];

/// Returns the name of the generator with which the earlier outputs, of `bits` bits each, predict the later
/// ones, or `None`. Pass a few thousand outputs; the first 4096 are examined.
pub fn predicted(outputs: &[u64], bits: u32) -> Option<&'static str> {
    assert!(outputs.iter().all(|output| output & !mask(bits) == 0), "outputs have {bits} bits");
    assert!(outputs.len() >= 1000, "{} outputs are too few for the attacks", outputs.len());
    let outputs = &outputs[..outputs.len().min(OUTPUTS_MAX)];
    ATTACKS.iter().find(|(_, attack)| attack(outputs, bits)).map(|(name, _)| *name)
}

fn mask(bits: u32) -> u64 {
    u64::MAX >> (64 - bits)
}

/// Returns the inverse of an odd number modulo 2^64, by Newton's iteration: each step doubles the correct
/// bits.
fn inverse(odd: u64) -> u64 {
    (0..6).fold(odd, |known, _| known.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(known))))
}

// ---- counters

/// Returns whether at least half of the outputs differ from the one before by the same step.
fn is_counter(outputs: &[u64], bits: u32) -> bool {
    let step = |pair: &[u64]| pair[1].wrapping_sub(pair[0]) & mask(bits);
    let right = outputs.windows(3).filter(|run| step(&run[..2]) == step(&run[1..])).count();
    right * 2 > outputs.len()
}

// ---- SplitMix64

fn splitmix_output(state: u64) -> u64 {
    let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns the state that produced an output: each step of SplitMix64 can be inverted.
fn splitmix_state(output: u64) -> u64 {
    const BACK: [u64; 2] = [0x96de_1b17_3f11_9089, 0x3196_42b2_d24d_8ec3];
    let z = (output ^ (output >> 31) ^ (output >> 62)).wrapping_mul(BACK[1]);
    let z = (z ^ (z >> 27) ^ (z >> 54)).wrapping_mul(BACK[0]);
    z ^ (z >> 30) ^ (z >> 60)
}

/// Computes SplitMix64's state after the first of `outputs`, each of which is a whole draw of 64 bits. Other
/// users may have drawn in between.
pub fn splitmix(outputs: &[u64]) -> Option<u64> {
    let steps = |pair: &[u64]| {
        splitmix_state(pair[1]).wrapping_sub(splitmix_state(pair[0])).wrapping_mul(inverse(GAMMA))
    };
    let all_near = outputs.windows(2).all(|pair| (1..=GAP_MAX).contains(&steps(pair)));
    (outputs.len() > 1 && all_near).then(|| splitmix_state(outputs[0]))
}

/// Like [`splitmix`], for draws that were sent as two halves, in either order.
fn splitmix_of_halves(outputs: &[u64]) -> Option<u64> {
    let joins: [fn(&[u64]) -> u64; 2] = [|pair| pair[0] << 32 | pair[1], |pair| pair[1] << 32 | pair[0]];
    let ways = joins.into_iter().flat_map(|join| [0, 1].map(|skipped| (join, skipped)));
    ways.into_iter().find_map(|(join, skipped)| {
        splitmix(&outputs[skipped..].chunks_exact(2).map(join).collect::<Vec<u64>>())
    })
}

/// Finds the small seed for which the lower or the upper `bits` of SplitMix64's draws are the outputs; other
/// users may draw in between. Returns the seed and the number of draws before the first output.
pub fn splitmix_of_small_seed(outputs: &[u64], bits: u32) -> Option<(u64, usize)> {
    let lower: fn(u64, u32) -> u64 = |draw, bits| draw & mask(bits);
    let upper: fn(u64, u32) -> u64 = |draw, bits| draw >> (64 - bits);
    // One of the 16 draws may match an output by chance, so use enough outputs to make a coincidence less
    // likely than 2^-64.
    let needed = 128_usize.div_ceil(bits.saturating_sub(4).max(1) as usize).clamp(3, outputs.len());
    let draw =
        |seed: u64, number: usize| splitmix_output(seed.wrapping_add(GAMMA.wrapping_mul(number as u64)));
    for seed in 0..SEEDS {
        for first in 1..=DRAWS_BEFORE_MAX {
            let found = draw(seed, first);
            for part in [lower, upper] {
                if part(found, bits) != outputs[0] {
                    continue;
                }
                let mut at = first;
                let follows = outputs[1..needed].iter().all(|output| {
                    let next = (at + 1..=at + 16).find(|number| part(draw(seed, *number), bits) == *output);
                    at = next.unwrap_or(at);
                    next.is_some()
                });
                if follows {
                    return Some((seed, first));
                }
            }
        }
    }
    None
}

/// Computes SplitMix64's state after the first of three consecutive draws, of which the lower (or upper) 32
/// bits are known. `others` are the candidates for the other half of the first draw; all 2^32 take half a
/// minute.
pub fn splitmix_from_half(
    known: [u32; 3],
    are_lower: bool,
    others: std::ops::RangeInclusive<u32>,
) -> Option<u64> {
    let half = |output: u64| if are_lower { output as u32 } else { (output >> 32) as u32 };
    let whole = |other: u32| match (u64::from(known[0]), u64::from(other)) {
        (lower, upper) if are_lower => upper << 32 | lower,
        (upper, lower) => upper << 32 | lower,
    };
    others.map(|other| splitmix_state(whole(other))).find(|state| {
        half(splitmix_output(state.wrapping_add(GAMMA))) == known[1]
            && half(splitmix_output(state.wrapping_add(GAMMA.wrapping_mul(2)))) == known[2]
    })
}

/// Returns SplitMix64's draws after `state`, to continue an attack.
pub fn splitmix_draws(state: u64) -> impl Iterator<Item = u64> {
    (1_u64..).map(move |number| splitmix_output(state.wrapping_add(GAMMA.wrapping_mul(number))))
}

// ---- linear congruential generators

/// Returns whether the outputs follow x' = a · x + c, modulo 2^bits (also as the lower bits of a larger
/// generator), or modulo a prime, which the differences reveal.
fn is_congruential(outputs: &[u64], bits: u32) -> bool {
    let power = i128::from(mask(bits)) + 1;
    let steps = |run: &[u64]| -> [i128; 2] { [1, 2].map(|n| i128::from(run[n]) - i128::from(run[n - 1])) };
    // Modulo a power of two, every odd difference has an inverse, and so gives the factor.
    let by_odd_step = outputs[..64].windows(3).any(|run| {
        let [first, second] = steps(run);
        first & 1 == 1 && {
            let factor = (second as u64).wrapping_mul(inverse(first as u64)) & mask(bits);
            goes_on(outputs, i128::from(factor), power)
        }
    });
    // With consecutive differences t0, t1, t2, the value t2 · t0 − t1² is a multiple of the modulus. So the
    // modulus is the greatest common divisor of these values, or a divisor of it.
    by_odd_step
        || bits <= 32 && {
            let zero = |run: &[u64]| {
                let ([first, second], [_, third]) = (steps(&run[..3]), steps(&run[1..]));
                (third * first - second * second).abs()
            };
            let modulus = outputs[..64].windows(4).map(zero).fold(0, common_divisor);
            let [first, second] = steps(outputs);
            modulus > 1
                && inverse_modulo(first.rem_euclid(modulus), modulus).is_some_and(|inverse| {
                    goes_on(outputs, second.rem_euclid(modulus) * inverse % modulus, modulus)
                })
        }
}

/// Returns whether most outputs follow from the previous one with this factor, and with the increment that
/// the first two outputs imply.
fn goes_on(outputs: &[u64], factor: i128, modulus: i128) -> bool {
    let next = |from: u64| (factor as u128).wrapping_mul(from.into());
    let increment =
        (i128::from(outputs[1]) - (next(outputs[0]) % modulus as u128) as i128).rem_euclid(modulus);
    let follows = |pair: &&[u64]| {
        (next(pair[0]) % modulus as u128 + increment as u128) % modulus as u128 == u128::from(pair[1])
    };
    outputs.windows(2).filter(follows).count() * 2 > outputs.len()
}

fn common_divisor(a: i128, b: i128) -> i128 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

fn inverse_modulo(value: i128, modulus: i128) -> Option<i128> {
    let (mut old, mut new, mut before, mut now) = (value, modulus, 1, 0);
    while new != 0 {
        let times = old / new;
        (old, new, before, now) = (new, old - times * new, now, before - times * now);
    }
    (old == 1).then(|| before.rem_euclid(modulus))
}

// ---- generators that are linear over GF(2)

/// Returns whether the lowest or the highest bits of the outputs come from a linear feedback register that is
/// much shorter than half the number of outputs.
fn is_linear(outputs: &[u64], bits: u32) -> bool {
    [0, bits - 1].into_iter().any(|place| {
        let sequence: Vec<u8> = outputs.iter().map(|output| (output >> place & 1) as u8).collect();
        // With a probability of 2^-128, the linear complexity of a random sequence is this far below half its
        // length.
        linear_complexity(&sequence) + 64 < sequence.len() / 2
    })
}

/// Returns the length of the shortest feedback register that generates a sequence of bits (Berlekamp, Massey
/// 1969).
fn linear_complexity(sequence: &[u8]) -> usize {
    let (mut taps, mut before) = (vec![0_u8; sequence.len() + 1], vec![0_u8; sequence.len() + 1]);
    (taps[0], before[0]) = (1, 1);
    let (mut length, mut since) = (0, 1);
    for at in 0..sequence.len() {
        let differs = (0..=length).fold(0, |sum, tap| sum ^ taps[tap] & sequence[at - tap]);
        if differs == 0 {
            since += 1;
            continue;
        }
        let kept = taps.clone();
        (since..taps.len()).for_each(|tap| taps[tap] ^= before[tap - since]);
        if 2 * length <= at {
            (length, before, since) = (at + 1 - length, kept, 1);
        } else {
            since += 1;
        }
    }
    length
}

// ---- MT19937

/// Matsumoto and Nishimura 1998: 624 outputs are the whole state.
fn is_mersenne_twister(outputs: &[u64], bits: u32) -> bool {
    const WORDS: usize = 624;
    const AHEAD: usize = 64;
    if bits != 32 || outputs.len() < WORDS + AHEAD {
        return false;
    }
    let mut state: Vec<u32> = outputs[..WORDS].iter().map(|output| untempered(*output as u32)).collect();
    (0..AHEAD).all(|at| {
        let joined = state[at] & 0x8000_0000 | state[at + 1] & 0x7fff_ffff;
        let twist = (joined >> 1) ^ if joined & 1 == 1 { 0x9908_b0df } else { 0 };
        state[at] = state[at + 397] ^ twist;
        u64::from(tempered(state[at])) == outputs[WORDS + at]
    })
}

fn tempered(word: u32) -> u32 {
    let word = word ^ word >> 11;
    let word = word ^ word << 7 & 0x9d2c_5680;
    let word = word ^ word << 15 & 0xefc6_0000;
    word ^ word >> 18
}

fn untempered(word: u32) -> u32 {
    let word = word ^ word >> 18;
    let word = word ^ word << 15 & 0xefc6_0000;
    // Each iteration of the first line makes seven more bits correct; each iteration of the second line,
    // eleven more.
    let word = (0..4).fold(word, |known, _| word ^ known << 7 & 0x9d2c_5680);
    (0..2).fold(word, |known, _| word ^ known >> 11)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiban_base::{RngKey, SecureRng, SimRng};

    const COUNT: usize = 2000;

    fn some(mut next: impl FnMut() -> u64) -> Vec<u64> {
        (0..COUNT).map(|_| next()).collect()
    }

    fn mersenne_twister(seed: u32) -> impl FnMut() -> u64 {
        let mut state = vec![seed; 624];
        for at in 1..624 {
            let last: u32 = state[at - 1];
            state[at] = (last ^ last >> 30).wrapping_mul(1_812_433_253).wrapping_add(at as u32);
        }
        let mut at = 0;
        move || {
            let joined = state[at] & 0x8000_0000 | state[(at + 1) % 624] & 0x7fff_ffff;
            state[at] = state[(at + 397) % 624] ^ (joined >> 1) ^ ((joined & 1) * 0x9908_b0df);
            at = (at + 1) % 624;
            u64::from(tempered(state[(at + 623) % 624]))
        }
    }

    fn xorshift64star(mut state: u64) -> impl FnMut() -> u64 {
        move || {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            state.wrapping_mul(0x2545_f491_4f6c_dd1d)
        }
    }

    fn xorshift128plus(mut state: [u64; 2]) -> impl FnMut() -> u64 {
        move || {
            let [mut first, second] = state;
            let output = first.wrapping_add(second);
            first ^= first << 23;
            state = [second, first ^ second ^ first >> 18 ^ second >> 5];
            output
        }
    }

    fn congruential(factor: u64, increment: u64) -> impl FnMut() -> u64 {
        let mut state = 0x0123_4567_89ab_cdef_u64;
        move || {
            state = state.wrapping_mul(factor).wrapping_add(increment);
            state
        }
    }

    /// Knuth's multiplier and increment for a 64-bit linear congruential generator. PCG uses the same values.
    const KNUTH: (u64, u64) = (6_364_136_223_846_793_005, 1_442_695_040_888_963_407);

    #[test]
    fn the_generators_are_the_published_ones() {
        let mut twister = mersenne_twister(5489);
        let outputs: Vec<u64> = (0..10_000).map(|_| twister()).collect();
        // The C++ standard gives the 10,000th output of std::mt19937 as a check value.
        assert_eq!((outputs[0], outputs[9999]), (3_499_211_612, 4_123_659_995));
        assert_eq!(xorshift64star(1)(), 5_180_492_295_206_395_165);
        assert!(
            (0..1000).map(|n: u64| n.wrapping_mul(GAMMA)).all(|n| splitmix_state(splitmix_output(n)) == n)
        );
        assert_eq!(splitmix_output(GAMMA), SimRng::from_seed(0).draw());
        assert!(
            (0..1000).all(
                |n: u32| untempered(tempered(n.wrapping_mul(0x9e37_79b9))) == n.wrapping_mul(0x9e37_79b9)
            )
        );
    }

    /// Each attack succeeds against the generator that it was made for, which shows that the attacks work.
    #[test]
    fn each_known_generator_is_predicted() {
        let large = || SimRng::from_seed(0x0123_4567_89ab_cdef);
        let mut gaps = large();
        let mut with_gaps = || (0..7).fold(0, |_, _| gaps.draw());
        let mut small = SimRng::from_seed(77);
        let mut between = SimRng::from_seed(5);
        let mut small_with_gaps = || (0..=between.below(3)).fold(0, |_, _| small.draw());
        let halves = |upper_first: bool| {
            let mut rng = large();
            let order = if upper_first { [32, 0] } else { [0, 32] };
            let of = move |draw: u64| order.map(|shift| draw >> shift & 0xffff_ffff);
            (0..COUNT / 2).flat_map(|_| of(rng.draw())).collect::<Vec<u64>>()
        };
        let mut counted = 0_u64;
        let mut minimal = 1_u64;
        let (factor, increment) = KNUTH;
        let rows: Vec<(&str, u32, Vec<u64>)> = vec![
            (
                "a counter",
                16,
                some(|| {
                    counted += 3;
                    counted & 0xffff
                }),
            ),
            ("SplitMix64", 64, {
                let mut rng = large();
                some(|| rng.draw())
            }),
            ("SplitMix64", 64, some(&mut with_gaps)),
            ("halves of SplitMix64", 32, halves(true)),
            ("halves of SplitMix64", 32, halves(false)[1..].to_vec()),
            ("SplitMix64 from a small seed", 32, some(|| small_with_gaps() & 0xffff_ffff)),
            ("SplitMix64 from a small seed", 16, {
                let mut rng = SimRng::from_seed(1);
                some(|| rng.draw() & 0xffff)
            }),
            ("SplitMix64 from a small seed", 14, {
                let mut rng = SimRng::from_seed(3);
                some(|| rng.below(1 << 14))
            }),
            ("a linear congruential generator", 64, some(congruential(factor, increment))),
            ("a linear congruential generator", 64, some(congruential(factor, 1))),
            ("a linear congruential generator", 32, {
                let mut next = congruential(factor, 3);
                some(move || next() & 0xffff_ffff)
            }),
            (
                "a linear congruential generator",
                31,
                some(|| {
                    minimal = minimal * 48_271 % 0x7fff_ffff;
                    minimal
                }),
            ),
            ("a generator linear over GF(2)", 64, some(xorshift64star(9))),
            ("a generator linear over GF(2)", 64, some(xorshift128plus([1, 2]))),
            ("a generator linear over GF(2)", 16, {
                let mut next = xorshift128plus([3, 4]);
                some(move || next() & 0xffff)
            }),
            ("MT19937", 32, some(mersenne_twister(7))),
        ];
        for (number, (name, bits, outputs)) in rows.into_iter().enumerate() {
            assert_eq!(predicted(&outputs, bits), Some(name), "row {number}");
        }
    }

    /// The secure generator from which boards draw is not predicted, at any output width that is sent.
    #[test]
    fn the_secure_generator_is_not_predicted() {
        for bits in [14, 16, 32, 64] {
            for seed in 0..4 {
                let mut rng = SecureRng::new(RngKey::for_simulation(seed));
                assert_eq!(predicted(&some(|| rng.draw() >> (64 - bits)), bits), None, "{bits} bits");
                assert_eq!(predicted(&some(|| rng.draw() & mask(bits)), bits), None, "{bits} bits");
            }
        }
    }

    #[test]
    fn half_of_each_draw_tells_the_state() {
        for (are_lower, shift) in [(true, 0), (false, 32)] {
            let mut rng = SimRng::from_seed(0xfeed_face_cafe_beef);
            let whole = [rng.draw(), rng.draw(), rng.draw()];
            let known = whole.map(|draw| (draw >> shift) as u32);
            // The search is the same as over all 2^32 candidates, but it starts a few thousand before the
            // right one.
            let other = (whole[0] >> (32 - shift)) as u32;
            let state = splitmix_from_half(known, are_lower, other.saturating_sub(5000)..=other)
                .expect("it is there");
            assert!(splitmix_draws(state).take(2).eq(whole[1..].iter().copied()));
        }
    }
}

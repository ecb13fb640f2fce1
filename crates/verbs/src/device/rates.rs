//! Conversion of link rates: enum values, multiples of 2.5 Gbit/s, and Mbit/s (ibv_rate_to_mult(3),
//! ibv_rate_to_mbps(3)).
//!
//! Errors    the result is -1 for an unknown rate, and `IBV_RATE_MAX` for an unknown multiple or number of
//!           Mbit/s.

use crate::abi::*;
use core::ffi::c_int;

struct Rate {
    code: ibv_rate,
    /// The multiple of 2.5 Gbit/s, for each rate for which rdma-core defines one.
    multiple: Option<c_int>,
    mbps: c_int,
}

const fn rate(code: ibv_rate, multiple: c_int, mbps: c_int) -> Rate {
    Rate { code, multiple: if multiple == 0 { None } else { Some(multiple) }, mbps }
}

const RATES: [Rate; 23] = [
    rate(IBV_RATE_2_5_GBPS, 1, 2_500),
    rate(IBV_RATE_5_GBPS, 2, 5_000),
    rate(IBV_RATE_10_GBPS, 4, 10_000),
    rate(IBV_RATE_20_GBPS, 8, 20_000),
    rate(IBV_RATE_30_GBPS, 12, 30_000),
    rate(IBV_RATE_40_GBPS, 16, 40_000),
    rate(IBV_RATE_60_GBPS, 24, 60_000),
    rate(IBV_RATE_80_GBPS, 32, 80_000),
    rate(IBV_RATE_120_GBPS, 48, 120_000),
    rate(IBV_RATE_14_GBPS, 0, 14_062),
    rate(IBV_RATE_56_GBPS, 0, 56_250),
    rate(IBV_RATE_112_GBPS, 0, 112_500),
    rate(IBV_RATE_168_GBPS, 0, 168_750),
    rate(IBV_RATE_25_GBPS, 0, 25_781),
    rate(IBV_RATE_100_GBPS, 0, 103_125),
    rate(IBV_RATE_200_GBPS, 0, 206_250),
    rate(IBV_RATE_300_GBPS, 0, 309_375),
    rate(IBV_RATE_28_GBPS, 11, 28_125),
    rate(IBV_RATE_50_GBPS, 20, 53_125),
    rate(IBV_RATE_400_GBPS, 160, 425_000),
    rate(IBV_RATE_600_GBPS, 240, 637_500),
    rate(IBV_RATE_800_GBPS, 320, 850_000),
    rate(IBV_RATE_1200_GBPS, 480, 1_275_000),
];

fn by_code(code: ibv_rate) -> Option<&'static Rate> {
    RATES.iter().find(|rate| rate.code == code)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_rate_to_mult(code: ibv_rate) -> c_int {
    by_code(code).and_then(|rate| rate.multiple).unwrap_or(-1)
}

#[unsafe(no_mangle)]
extern "C" fn mult_to_ibv_rate(multiple: c_int) -> ibv_rate {
    RATES.iter().find(|rate| rate.multiple == Some(multiple)).map_or(IBV_RATE_MAX, |rate| rate.code)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_rate_to_mbps(code: ibv_rate) -> c_int {
    by_code(code).map_or(-1, |rate| rate.mbps)
}

#[unsafe(no_mangle)]
extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> ibv_rate {
    RATES.iter().find(|rate| rate.mbps == mbps).map_or(IBV_RATE_MAX, |rate| rate.code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference_library::{RealLibrary, VERBS};

    #[test]
    fn rates_match_rdma_core() {
        let real = RealLibrary::open(VERBS);
        // SAFETY: the types are those of verbs.h.
        let (to_mult, to_mbps, of_mult, of_mbps) = unsafe {
            (
                real.function::<extern "C" fn(ibv_rate) -> c_int>(c"ibv_rate_to_mult"),
                real.function::<extern "C" fn(ibv_rate) -> c_int>(c"ibv_rate_to_mbps"),
                real.function::<extern "C" fn(c_int) -> ibv_rate>(c"mult_to_ibv_rate"),
                real.function::<extern "C" fn(c_int) -> ibv_rate>(c"mbps_to_ibv_rate"),
            )
        };
        for code in (0..300).chain([ibv_rate::MAX]) {
            assert_eq!(
                (ibv_rate_to_mult(code), ibv_rate_to_mbps(code)),
                (to_mult(code), to_mbps(code)),
                "{code}"
            );
        }
        for multiple in -2..1000 {
            assert_eq!(mult_to_ibv_rate(multiple), of_mult(multiple), "{multiple}");
        }
        for mbps in -2..1_300_000 {
            assert_eq!(mbps_to_ibv_rate(mbps), of_mbps(mbps), "{mbps}");
        }
    }
}

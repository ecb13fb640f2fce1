//! Forward error correction of AAL1: Reed-Solomon codes over interleaved cells (I.363.1 §2.5.2.4).
//!
//! Purpose   restore the contents of lost cells and correct some bit errors before delivery.
//!
//! ```text
//! long    RS(128, 124)   47 rows of 128 octets; written by row, sent by column: a column is a cell
//!                        128 cells, 5828 octets of the user; four lost cells, or two wrong octets a row
//! short   RS(94, 88)      8 rows of  94 octets; likewise, a cell is 47 octets of the columns in turn
//!                         16 cells,  704 octets of the user; one lost cell: at most six octets of a row
//! ```
//!
//! Field     GF(2^8) by x^8 + x^7 + x^2 + x + 1, α = x; the generator is the product of (x - α^(120 + i)).
//! Decoding  a cell known to be lost is an *erasure*: its octets are wrong in known positions. e errors and k
//!           erasures in a row are corrected as long as 2e + k does not exceed the number of check octets
//!           (Berlekamp-Massey initialised with the erasures, Chien, Forney). The result is verified again
//!           before it is used.
//! Source    code sizes, matrix and capacities follow public descriptions. The field, the base exponent and
//!           the order within the short matrix are from memory, and have not been checked against the text of
//!           the standard.
//! Limits    a row with more damage is left as received and reported.

use super::header::PAYLOAD_OCTETS;

/// One of the two codes, with its interleaving matrix.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Code {
    /// RS(128, 124) over 128 cells, for delay-tolerant services such as one-way video.
    Long,
    /// RS(94, 88) over 16 cells, for delay-sensitive services.
    Short,
}

/// Maximum check octets in a row.
const CHECK_OCTETS_MAX: usize = 6;
/// The exponent of the first root of the generator polynomial.
const BASE: usize = 120;
/// Octets of the larger matrix.
pub const MATRIX_OCTETS_MAX: usize = Code::Long.matrix_octets();
/// Cells of the larger matrix.
pub const CELLS_MAX: usize = Code::Long.cells();

/// A row has more damage than its code can correct.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Uncorrectable;

impl Code {
    /// Returns the number of cells in a matrix.
    pub const fn cells(self) -> usize {
        match self {
            Code::Long => 128,
            Code::Short => 16,
        }
    }

    /// Returns the number of rows in a matrix.
    pub const fn rows(self) -> usize {
        self.matrix_octets() / self.row_octets()
    }

    /// Returns the number of octets in a row (n of the code).
    pub const fn row_octets(self) -> usize {
        match self {
            Code::Long => 128,
            Code::Short => 94,
        }
    }

    /// Returns the number of user octets in a row (k of the code).
    pub const fn data_octets(self) -> usize {
        self.row_octets() - self.check_octets()
    }

    /// Returns the number of check octets in a row.
    pub const fn check_octets(self) -> usize {
        match self {
            Code::Long => 4,
            Code::Short => 6,
        }
    }

    /// Returns the number of octets in a matrix.
    pub const fn matrix_octets(self) -> usize {
        self.cells() * PAYLOAD_OCTETS
    }

    /// Returns the number of user octets in a matrix.
    pub const fn user_octets(self) -> usize {
        self.rows() * self.data_octets()
    }

    /// Returns how many lost cells of a matrix can be recovered if there are no other errors.
    pub const fn lost_cells_max(self) -> usize {
        match self {
            Code::Long => 4,
            Code::Short => 1,
        }
    }

    /// Returns the index in the matrix, stored row by row, of the octet that is sent at position `sent`.
    #[inline]
    const fn matrix_index(self, sent: usize) -> usize {
        sent % self.rows() * self.row_octets() + sent / self.rows()
    }

    /// Encodes and interleaves a matrix into sending order; every 47 octets are a cell.
    ///
    /// # Panics
    /// If the length of `user` is not [`Code::user_octets`], or the length of `cells` is not
    /// [`Code::matrix_octets`].
    pub fn interleave(self, user: &[u8], cells: &mut [u8]) {
        assert_eq!((user.len(), cells.len()), (self.user_octets(), self.matrix_octets()), "a whole matrix");
        let (n, k, rows) = (self.row_octets(), self.data_octets(), self.rows());
        for (row, data) in user.chunks_exact(k).enumerate() {
            let check = self.check(data);
            let octets = data.iter().chain(&check[..self.check_octets()]);
            for (column, octet) in octets.enumerate() {
                cells[column * rows + row] = *octet;
            }
            debug_assert_eq!(data.len() + self.check_octets(), n);
        }
    }

    /// Deinterleaves and decodes a matrix received in sending order; cells marked in `lost` may have any
    /// contents. Fills `user` row by row and returns how many octets outside lost cells were corrected.
    ///
    /// # Errors
    /// The number of uncorrectable rows, which were left as received.
    ///
    /// # Panics
    /// If the lengths do not match the matrix.
    pub fn recover(self, cells: &[u8], lost: &[bool], user: &mut [u8]) -> Result<usize, usize> {
        let whole = (self.matrix_octets(), self.cells(), self.user_octets());
        assert_eq!((cells.len(), lost.len(), user.len()), whole, "a whole matrix");
        let (n, rows) = (self.row_octets(), self.rows());
        let (mut corrected, mut left) = (0, 0);
        let mut word = [0; 128];
        let mut erased = [false; 128];
        for (row, data) in user.chunks_exact_mut(self.data_octets()).enumerate() {
            for column in 0..n {
                let sent = column * rows + row;
                debug_assert_eq!(self.matrix_index(sent), row * n + column);
                word[column] = cells[sent];
                erased[column] = lost[sent / PAYLOAD_OCTETS];
            }
            match self.correct(&mut word[..n], &erased[..n]) {
                Ok(count) => corrected += count,
                Err(Uncorrectable) => left += 1,
            }
            data.copy_from_slice(&word[..data.len()]);
        }
        if left == 0 { Ok(corrected) } else { Err(left) }
    }

    /// Computes the check octets of a row; the rest of the array is zero.
    fn check(self, data: &[u8]) -> [u8; CHECK_OCTETS_MAX] {
        let generator = match self {
            Code::Long => &LONG,
            Code::Short => &SHORT,
        };
        let count = self.check_octets();
        let mut rest = [0; CHECK_OCTETS_MAX];
        for octet in data {
            let factor = octet ^ rest[0];
            rest.copy_within(1..count, 0);
            rest[count - 1] = 0;
            for (place, octet) in rest[..count].iter_mut().enumerate() {
                *octet ^= product(factor, generator[count - 1 - place]);
            }
        }
        rest
    }

    /// Corrects a row and returns how many octets that were not erased were changed.
    ///
    /// # Errors
    /// [`Uncorrectable`]; the row is unchanged.
    ///
    /// # Panics
    /// If the length of a slice is not the length of a row.
    pub fn correct(self, row: &mut [u8], erased: &[bool]) -> Result<usize, Uncorrectable> {
        let (n, count) = (self.row_octets(), self.check_octets());
        assert_eq!((row.len(), erased.len()), (n, n), "a whole row");
        let syndromes = syndromes(row, count);
        if syndromes[..count].iter().all(|syndrome| *syndrome == 0) {
            return Ok(0);
        }
        let lost = erased.iter().filter(|is| **is).count();
        if lost > count {
            return Err(Uncorrectable);
        }
        // The erasure locator is the product of (1 - X x), where X = α^(degree of the octet).
        let mut locator = [0; CHECK_OCTETS_MAX + 1];
        locator[0] = 1;
        for (column, _) in erased.iter().enumerate().filter(|(_, is)| **is) {
            let x = power(n - 1 - column);
            for place in (1..locator.len()).rev() {
                locator[place] ^= product(x, locator[place - 1]);
            }
        }
        let degree = find_locator(&mut locator, &syndromes, lost, count);
        if 2 * degree - lost.min(degree) > count {
            return Err(Uncorrectable);
        }
        let mut mended = [0; 128];
        mended[..n].copy_from_slice(row);
        let (mut roots, mut changed) = (0, 0);
        for column in 0..n {
            let inverse = power(255 - (n - 1 - column) % 255);
            if value(&locator, inverse) != 0 {
                continue;
            }
            roots += 1;
            let Some(error) = magnitude(&locator, &syndromes, count, n - 1 - column) else {
                return Err(Uncorrectable);
            };
            changed += usize::from(error != 0 && !erased[column]);
            mended[column] ^= error;
        }
        let clean = self::syndromes(&mended[..n], count).iter().all(|syndrome| *syndrome == 0);
        if roots != degree || !clean {
            return Err(Uncorrectable);
        }
        row.copy_from_slice(&mended[..n]);
        Ok(changed)
    }
}

/// Finds the shortest locator polynomial that explains the syndromes, by Berlekamp-Massey initialised with
/// the erasure locator. Returns its degree.
fn find_locator(
    locator: &mut [u8; CHECK_OCTETS_MAX + 1],
    syndromes: &[u8; CHECK_OCTETS_MAX],
    lost: usize,
    count: usize,
) -> usize {
    let mut before = *locator;
    let mut length = lost;
    for step in lost + 1..=count {
        let discrepancy =
            (0..step).fold(0, |sum, place| sum ^ product(locator[place], syndromes[step - 1 - place]));
        before.copy_within(..CHECK_OCTETS_MAX, 1);
        before[0] = 0;
        if discrepancy == 0 {
            continue;
        }
        let mut next = *locator;
        next.iter_mut().zip(&before).for_each(|(next, before)| *next ^= product(discrepancy, *before));
        if 2 * length < step + lost {
            length = step + lost - length;
            let inverse = power(255 - LOGARITHMS[discrepancy as usize] as usize);
            before = locator.map(|octet| product(inverse, octet));
        }
        *locator = next;
    }
    locator.iter().rposition(|octet| *octet != 0).unwrap_or(0)
}

/// Computes the error value at an octet, given the octet's degree (Forney). Returns `None` if the locator's
/// root is not simple.
fn magnitude(
    locator: &[u8; CHECK_OCTETS_MAX + 1],
    syndromes: &[u8; CHECK_OCTETS_MAX],
    count: usize,
    degree: usize,
) -> Option<u8> {
    let inverse = power(255 - degree % 255);
    // Ω = S Λ mod x^count, at the root.
    let mut omega = 0;
    for place in (0..count).rev() {
        let term = (0..=place).fold(0, |sum, at| sum ^ product(locator[at], syndromes[place - at]));
        omega = product(omega, inverse) ^ term;
    }
    // Compute the formal derivative in a field of characteristic 2: keep the odd powers and lower them by
    // one.
    let square = product(inverse, inverse);
    let slope = [5, 3, 1].into_iter().fold(0, |sum, place: usize| product(sum, square) ^ locator[place]);
    if slope == 0 {
        return None;
    }
    // X^(1 - BASE).
    let scale = power((degree * (255 + 1 - BASE)) % 255);
    let divided = product(omega, power(255 - LOGARITHMS[slope as usize] as usize));
    Some(product(scale, divided))
}

/// Evaluates the row as a polynomial, in which the first octet is the highest coefficient, at the roots of
/// the generator.
fn syndromes(row: &[u8], count: usize) -> [u8; CHECK_OCTETS_MAX] {
    let mut syndromes = [0; CHECK_OCTETS_MAX];
    for (place, syndrome) in syndromes[..count].iter_mut().enumerate() {
        let root = power(BASE + place);
        *syndrome = row.iter().fold(0, |sum, octet| product(sum, root) ^ octet);
    }
    syndromes
}

fn value(polynomial: &[u8], at: u8) -> u8 {
    polynomial.iter().rev().fold(0, |sum, octet| product(sum, at) ^ octet)
}

/// x^8 + x^7 + x^2 + x + 1, without its highest term.
const FIELD: u8 = 0x87;

/// α^i for i below 510, so that the sum of two logarithms can be used as an index.
static POWERS: [u8; 510] = {
    let mut powers = [0; 510];
    let (mut exponent, mut octet) = (0, 1u8);
    while exponent < 510 {
        powers[exponent] = octet;
        octet = (octet << 1) ^ ((octet >> 7) * FIELD);
        exponent += 1;
    }
    powers
};

static LOGARITHMS: [u8; 256] = {
    let mut logarithms = [0; 256];
    let mut exponent = 0;
    while exponent < 255 {
        logarithms[POWERS[exponent] as usize] = exponent as u8;
        exponent += 1;
    }
    logarithms
};

#[inline]
const fn power(exponent: usize) -> u8 {
    POWERS[exponent % 255]
}

#[inline]
const fn product(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    POWERS[LOGARITHMS[a as usize] as usize + LOGARITHMS[b as usize] as usize]
}

/// The generator polynomials without their highest term, lowest coefficient first.
static LONG: [u8; CHECK_OCTETS_MAX] = generator(4);
static SHORT: [u8; CHECK_OCTETS_MAX] = generator(6);

const fn generator(count: usize) -> [u8; CHECK_OCTETS_MAX] {
    let mut polynomial = [0; CHECK_OCTETS_MAX + 1];
    polynomial[0] = 1;
    let mut root = 0;
    while root < count {
        let factor = power(BASE + root);
        let mut place = root + 1;
        while place > 0 {
            polynomial[place] = polynomial[place - 1] ^ product(factor, polynomial[place]);
            place -= 1;
        }
        polynomial[0] = product(factor, polynomial[0]);
        root += 1;
    }
    let mut low = [0; CHECK_OCTETS_MAX];
    let mut place = 0;
    while place < count {
        low[place] = polynomial[place];
        place += 1;
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const CODES: [Code; 2] = [Code::Long, Code::Short];

    fn user(code: Code, seed: u8) -> Vec<u8> {
        (0..code.user_octets()).map(|place| (place * 7 + place / 251) as u8 ^ seed).collect()
    }

    fn sent(code: Code, user: &[u8]) -> Vec<u8> {
        let mut cells = vec![0; code.matrix_octets()];
        code.interleave(user, &mut cells);
        cells
    }

    #[test]
    fn the_matrices_have_the_sizes_of_the_standard() {
        let sizes = |code: Code| (code.cells(), code.rows(), code.data_octets(), code.user_octets());
        assert_eq!(sizes(Code::Long), (128, 47, 124, 5828));
        assert_eq!(sizes(Code::Short), (16, 8, 88, 704));
    }

    #[test]
    fn the_field_has_255_powers_and_each_once() {
        let mut seen = [false; 256];
        POWERS[..255].iter().for_each(|octet| seen[usize::from(*octet)] = true);
        assert!(!seen[0] && seen[1..].iter().all(|is| *is));
        // Values computed by hand: α^8 is the field polynomial without its highest term, and α^9 is α times
        // that.
        assert_eq!((power(8), power(9)), (0x87, 0x89));
        assert_eq!(product(0x80, 2), 0x87);
    }

    #[test]
    fn a_column_of_the_long_matrix_is_a_cell_and_user_octets_stand_in_rows() {
        let user: Vec<u8> = (0..5828).map(|place| (place / 124) as u8).collect();
        let cells = sent(Code::Long, &user);
        let first: Vec<u8> = (0..47).collect();
        assert!(cells.chunks(47).take(124).all(|cell| cell == first));
        assert!(cells.chunks(47).skip(124).all(|cell| cell != first));
    }

    #[test]
    fn lost_cells_are_corrected_up_to_the_guaranteed_number() {
        for code in CODES {
            let (user, most) = (user(code, 1), code.lost_cells_max());
            let cells = sent(code, &user);
            for first in 0..code.cells() - most {
                let mut damaged = cells.clone();
                let mut lost = vec![false; code.cells()];
                for cell in first..first + most {
                    damaged[cell * 47..][..47].fill(0);
                    lost[cell] = true;
                }
                let mut out = vec![0; user.len()];
                assert_eq!(code.recover(&damaged, &lost, &mut out), Ok(0), "{code:?} from {first}");
                assert!(out == user);
                damaged[(first + most) * 47..][..47].fill(0);
                lost[first + most] = true;
                let rows = code.recover(&damaged, &lost, &mut out).expect_err("too much is lost");
                assert!(rows > 0 && rows <= code.rows());
            }
        }
    }

    proptest! {
        #[test]
        fn errors_within_the_codes_capability_are_corrected(
            is_long in any::<bool>(), data in prop::collection::vec(any::<u8>(), 124),
            lost in 0usize..7, wrong in 0usize..4, places in prop::collection::hash_set(0usize..94, 12),
            flips in prop::collection::vec(1u8.., 12),
        ) {
            let code = if is_long { Code::Long } else { Code::Short };
            let (n, count) = (code.row_octets(), code.check_octets());
            let lost = lost.min(count);
            let wrong = wrong.min((count - lost) / 2);
            let mut row = data[..code.data_octets()].to_vec();
            row.extend_from_slice(&code.check(&row)[..count]);
            let (mut damaged, mut erased) = (row.clone(), vec![false; n]);
            for (number, (place, flip)) in places.iter().zip(&flips).take(lost + wrong).enumerate() {
                damaged[*place] ^= flip;
                erased[*place] = number < lost;
            }
            prop_assert_eq!(code.correct(&mut damaged, &erased), Ok(wrong));
            prop_assert_eq!(damaged, row);
        }

        #[test]
        fn decoding_gives_a_code_word_or_leaves_the_input_unchanged(
            is_long in any::<bool>(), octets in prop::collection::vec(any::<u8>(), 128),
            erased in prop::collection::vec(prop::bool::weighted(0.03), 128),
        ) {
            let code = if is_long { Code::Long } else { Code::Short };
            let n = code.row_octets();
            let mut row = octets[..n].to_vec();
            match code.correct(&mut row, &erased[..n]) {
                Ok(_) => {
                    let (data, check) = row.split_at(code.data_octets());
                    prop_assert_eq!(&code.check(data)[..check.len()], check);
                }
                Err(Uncorrectable) => prop_assert_eq!(&row[..], &octets[..n]),
            }
        }
    }

    /// The generator is zero at its roots, but not at the exponents just before or after them.
    #[test]
    fn the_generator_has_its_defining_roots() {
        for (code, low) in [(Code::Long, LONG), (Code::Short, SHORT)] {
            let count = code.check_octets();
            let mut whole = low[..count].to_vec();
            whole.push(1);
            let vanishes: Vec<usize> = (0..255).filter(|root| value(&whole, power(*root)) == 0).collect();
            assert_eq!(vanishes, (BASE..BASE + count).collect::<Vec<_>>());
        }
    }
}

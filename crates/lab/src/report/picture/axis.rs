//! Axes: the mapping of values to coordinates.

/// The scale of an axis.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Scale {
    /// Linear, from zero to a round value.
    Linear,
    /// Linear, starting at this value instead of zero, for data that differ by only a few percent. The axis
    /// label shows the value.
    From(f64),
    /// Linear, over the range of the data; used for time axes.
    Range,
    /// Logarithmic, marked at powers of ten. Values that are not positive are not drawn.
    Decades,
    /// Logarithmic, marked at powers of two. Values that are not positive are not drawn.
    Doublings,
}

/// A range of values and its position in the drawing.
pub(super) struct Axis {
    range: (f64, f64),
    /// The logarithm that is applied to values, on a logarithmic axis.
    logarithm: Option<fn(f64) -> f64>,
    /// The coordinates of the two ends.
    pub(super) page: (f64, f64),
    /// The values of the tick marks.
    pub(super) marks: Vec<f64>,
}

impl Axis {
    pub(super) fn new(scale: Scale, figures: impl Iterator<Item = f64>, page: (f64, f64)) -> Axis {
        let logarithm: Option<fn(f64) -> f64> = match scale {
            Scale::Decades => Some(f64::log10),
            Scale::Doublings => Some(f64::log2),
            _ => None,
        };
        let wanted = figures.filter(|figure| figure.is_finite() && (logarithm.is_none() || *figure > 0.0));
        let (least, most) = wanted.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), figure| {
            (least.min(figure), most.max(figure))
        });
        let (least, most) = if least <= most { (least, most) } else { (1.0, 1.0) };
        let (range, marks) = match scale {
            Scale::Linear => even(0.0, if most > 0.0 { most } else { 1.0 }),
            Scale::From(begin) => even(begin, if most > begin { most } else { begin + 1.0 }),
            Scale::Range => within(least, most),
            Scale::Decades => {
                let (first, last) = (least.log10().floor(), most.log10().ceil());
                let last = if last > first { last } else { first + 1.0 };
                ((first, last), (first as i32..=last as i32).map(|power| 10f64.powi(power)).collect())
            }
            Scale::Doublings => {
                let (first, last) = (least.log2(), most.log2());
                let last = if last > first { last } else { first + 1.0 };
                let (from, to) = (first.ceil() as i32, last.floor() as i32);
                let step = ((to - from) / 9 + 1).max(1) as usize;
                ((first, last), (from..=to).step_by(step).map(|power| 2f64.powi(power)).collect())
            }
        };
        Axis { range, logarithm, page, marks }
    }

    /// Returns the coordinate of a value.
    pub(super) fn at(&self, figure: f64) -> f64 {
        let place = match self.logarithm {
            None => figure,
            Some(_) if figure <= 0.0 => return self.page.0,
            Some(logarithm) => logarithm(figure),
        };
        let part = (place - self.range.0) / (self.range.1 - self.range.0);
        self.page.0 + part * (self.page.1 - self.page.0)
    }
}

/// Returns the range from `begin` to a round value of at least `most`, and its tick marks.
fn even(begin: f64, most: f64) -> ((f64, f64), Vec<f64>) {
    let step = step(most - begin);
    let count = ((most - begin) / step - 1e-9).ceil().max(1.0);
    let marks = (0..=count as usize).map(|number| begin + number as f64 * step).collect();
    ((begin, begin + count * step), marks)
}

/// Returns the exact range, with tick marks at round values.
fn within(least: f64, most: f64) -> ((f64, f64), Vec<f64>) {
    let most = if most > least { most } else { least + 1.0 };
    let step = step(most - least);
    let first = (least / step - 1e-9).ceil() as i64;
    let last = (most / step + 1e-9).floor() as i64;
    ((least, most), (first..=last).map(|number| number as f64 * step).collect())
}

/// Returns a round step that divides a length into three to seven parts.
fn step(length: f64) -> f64 {
    let decade = 10f64.powf(length.log10().floor());
    [0.2, 0.25, 0.5, 1.0]
        .map(|part| part * decade)
        .into_iter()
        .find(|step| length / step <= 7.0)
        .unwrap_or(decade * 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tick_marks_are_round_numbers() {
        let marks = |scale, figures: &[f64]| Axis::new(scale, figures.iter().copied(), (0.0, 100.0)).marks;
        for (scale, figures, expected) in [
            (Scale::Linear, &[3.0, 134.6][..], &[0.0, 20.0, 40.0, 60.0, 80.0, 100.0, 120.0, 140.0][..]),
            (Scale::Linear, &[1.0, 60.0], &[0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0]),
            (Scale::From(60.0), &[63.0, 134.0], &[60.0, 80.0, 100.0, 120.0, 140.0]),
            (Scale::Range, &[2.0, 11.0], &[2.0, 4.0, 6.0, 8.0, 10.0]),
            (Scale::Decades, &[12.0, 9_000.0, 0.4], &[0.1, 1.0, 10.0, 100.0, 1000.0, 10_000.0]),
            (Scale::Doublings, &[8.0, 24.0, 256.0], &[8.0, 16.0, 32.0, 64.0, 128.0, 256.0]),
            (Scale::Doublings, &[64.0, 65_536.0], &[64.0, 256.0, 1024.0, 4096.0, 16_384.0, 65_536.0]),
        ] {
            assert_eq!(marks(scale, figures), expected, "{scale:?}");
        }
    }

    #[test]
    fn values_map_to_coordinates() {
        for (scale, figures, figure, place) in [
            (Scale::Linear, [0.0, 100.0], 50.0, 50.0),
            (Scale::From(50.0), [60.0, 100.0], 75.0, 50.0),
            (Scale::Range, [10.0, 20.0], 10.0, 0.0),
            (Scale::Decades, [1.0, 100.0], 10.0, 50.0),
            (Scale::Doublings, [16.0, 256.0], 64.0, 50.0),
        ] {
            let axis = Axis::new(scale, figures.into_iter(), (0.0, 100.0));
            assert!((axis.at(figure) - place).abs() < 1e-9, "{scale:?}: {}", axis.at(figure));
        }
    }

    #[test]
    fn an_axis_of_no_value_or_one_value_is_valid() {
        for scale in [Scale::Linear, Scale::From(3.0), Scale::Range, Scale::Decades, Scale::Doublings] {
            for figures in [vec![], vec![4.0], vec![0.0], vec![f64::NAN]] {
                let axis = Axis::new(scale, figures.iter().copied(), (0.0, 100.0));
                assert!(
                    axis.at(4.0).is_finite() && axis.marks.len() < 20,
                    "{scale:?} {figures:?}: {:?}",
                    axis.marks
                );
            }
        }
    }
}

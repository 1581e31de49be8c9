//! Axes: from values to a share of the axis' length, and the ticks in between.
//!
//! Model: a linear axis has ticks at multiples of 1, 2 or 5 times a power of ten; a logarithmic one
//! at the powers of ten, and at 2 and 5 times them while there are few decades.

/// How values are spread along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Equal differences, equal lengths.
    Linear,
    /// Equal ratios, equal lengths.
    Logarithmic,
}

/// An axis: what it shows, in which unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    label: String,
    unit: String,
    kind: Kind,
    from_zero: bool,
}

impl Axis {
    /// A linear axis that starts at 0 (or below, if values do).
    pub fn new(label: impl Into<String>, unit: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            unit: unit.into(),
            kind: Kind::Linear,
            from_zero: true,
        }
    }

    /// Makes it linear or logarithmic.
    #[must_use]
    pub fn kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// Lets a linear axis begin near the smallest value. Heights are then no longer proportions.
    #[must_use]
    pub fn cut(mut self) -> Self {
        self.from_zero = false;
        self
    }

    pub(super) fn title(&self) -> String {
        if self.unit.is_empty() {
            self.label.clone()
        } else {
            format!("{} ({})", self.label, self.unit)
        }
    }

    pub(super) fn unit(&self) -> &str {
        &self.unit
    }

    pub(super) fn kind_of(&self) -> Kind {
        self.kind
    }

    /// The scale that shows all `values`, which are finite, and positive where it is logarithmic.
    pub(super) fn scale(&self, values: impl Iterator<Item = f64>) -> Scale {
        let usable = values.filter(|value| self.kind == Kind::Linear || *value > 0.0);
        let (low, high) = usable.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| {
            (low.min(v), high.max(v))
        });
        match self.kind {
            Kind::Linear => Scale::linear(if self.from_zero { low.min(0.0) } else { low }, high),
            Kind::Logarithmic => Scale::logarithmic(low, high),
        }
    }
}

/// An axis with its range and ticks.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    kind: Kind,
    low: f64,
    high: f64,
    /// Where the labeled ticks are.
    pub(super) ticks: Vec<f64>,
}

impl Scale {
    fn linear(low: f64, high: f64) -> Self {
        let (low, high) = if high > low {
            (low, high)
        } else {
            (low - 0.5, high + 0.5)
        };
        let rough: f64 = (high - low) / 6.0;
        let decade = 10_f64.powf(rough.log10().floor());
        let step = decade
            * [1.0, 2.0, 5.0]
                .into_iter()
                .find(|m| m * decade >= rough)
                .unwrap_or(10.0);
        let (first, last) = ((low / step).floor(), (high / step).ceil());
        let count = (last - first) as usize;
        let ticks: Vec<f64> = (0..=count).map(|index| (first + index as f64) * step).collect();
        Self {
            kind: Kind::Linear,
            low: first * step,
            high: last * step,
            ticks,
        }
    }

    fn logarithmic(low: f64, high: f64) -> Self {
        let (first, last) = (low.log10().floor(), high.log10().ceil());
        let last = if last > first { last } else { first + 1.0 };
        let decades = (last - first) as i32;
        let steps: &[f64] = if decades <= 3 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let low = steps
            .iter()
            .rev()
            .map(|m| m * 10_f64.powf(first))
            .find(|v| *v <= low * 1.000_001);
        let top = 10_f64.powf(last);
        let high = steps
            .iter()
            .map(|m| m * top / 10.0)
            .find(|v| *v >= high * 0.999_999)
            .unwrap_or(top);
        let low = low.unwrap_or_else(|| 10_f64.powf(first)).min(high / 2.0);
        let stride = (decades / 8 + 1) as usize;
        let ticks = (0..=decades)
            .step_by(stride)
            .flat_map(|decade| {
                steps
                    .iter()
                    .map(move |m| m * 10_f64.powf(first + f64::from(decade)))
            })
            .filter(|tick| (low * 0.999..=high * 1.001).contains(tick))
            .collect();
        Self {
            kind: Kind::Logarithmic,
            low,
            high,
            ticks,
        }
    }

    /// Share of the axis' length, 0 at its low end; ends of intervals beyond it are cut off.
    pub(super) fn place(&self, value: f64) -> f64 {
        let share = match self.kind {
            Kind::Linear => (value - self.low) / (self.high - self.low),
            Kind::Logarithmic if value <= 0.0 => 0.0,
            Kind::Logarithmic => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        share.clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(Scale::linear(0.0, 1405.0).ticks, [0.0, 500.0, 1000.0, 1500.0]);
        assert_eq!(Scale::linear(0.0, 6.0).ticks, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(Scale::logarithmic(3.0, 40.0).ticks, [2.0, 5.0, 10.0, 20.0, 50.0]);
        assert_eq!(Scale::logarithmic(1.0, 1e5).ticks.len(), 6);
    }

    proptest! {
        #[test]
        fn every_value_is_on_the_axis(values in prop::collection::vec(1e-6..1e9_f64, 1..20), log: bool) {
            let kind = if log { Kind::Logarithmic } else { Kind::Linear };
            let scale = Axis::new("x", "").kind(kind).scale(values.iter().copied());
            prop_assert!(scale.ticks.len() >= 2 && scale.ticks.len() <= 30, "{:?}", scale.ticks);
            for value in values {
                let share = match kind {
                    Kind::Linear => (value - scale.low) / (scale.high - scale.low),
                    Kind::Logarithmic => (value / scale.low).ln() / (scale.high / scale.low).ln(),
                };
                prop_assert!((-1e-5..=1.0 + 1e-5).contains(&share), "{value} at {share} of {scale:?}");
            }
        }
    }
}

//! Sets of 128-bit numbers as ascending, disjoint, not adjacent closed intervals.

/// A set of numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Intervals(Vec<(u128, u128)>);

/// The union of intervals in any order; each with its low end first.
impl FromIterator<(u128, u128)> for Intervals {
    fn from_iter<I: IntoIterator<Item = (u128, u128)>>(intervals: I) -> Self {
        let mut sorted: Vec<(u128, u128)> = intervals.into_iter().collect();
        sorted.sort_unstable();
        let mut merged: Vec<(u128, u128)> = Vec::with_capacity(sorted.len());
        for (low, high) in sorted {
            match merged.last_mut() {
                Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
                _ => merged.push((low, high)),
            }
        }
        Self(merged)
    }
}

impl Intervals {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, (u128, u128)> {
        self.0.iter()
    }

    pub(super) fn union(&self, other: &Self) -> Self {
        self.iter().chain(other.iter()).copied().collect()
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        let (mut mine, mut theirs) = (self.iter().peekable(), other.iter().peekable());
        let mut common = Vec::new();
        while let (Some(&&(low_a, high_a)), Some(&&(low_b, high_b))) = (mine.peek(), theirs.peek()) {
            let (low, high) = (low_a.max(low_b), high_a.min(high_b));
            if low <= high {
                common.push((low, high));
            }
            if high_a <= high_b {
                mine.next();
            } else {
                theirs.next();
            }
        }
        Self(common)
    }

    /// What it lacks of 0 to `max`.
    pub(super) fn complement(&self, max: u128) -> Self {
        let mut gaps = Vec::new();
        let mut from = Some(0);
        for &(low, high) in self.iter() {
            if let Some(from) = from
                && from < low
            {
                gaps.push((from, low - 1));
            }
            from = high.checked_add(1);
        }
        if let Some(from) = from
            && from <= max
        {
            gaps.push((from, max));
        }
        Self(gaps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set() -> impl Strategy<Value = Intervals> {
        proptest::collection::vec((0..40u128, 0..40u128), 0..6)
            .prop_map(|pairs| pairs.into_iter().map(|(a, b)| (a.min(b), a.max(b))).collect())
    }

    fn holds(set: &Intervals, value: u128) -> bool {
        set.iter().any(|&(low, high)| low <= value && value <= high)
    }

    proptest! {
        #[test]
        fn sets_behave_as_sets(a in set(), b in set()) {
            let (union, common, rest) = (a.union(&b), a.intersection(&b), a.complement(50));
            for value in 0..=50 {
                prop_assert_eq!(holds(&union, value), holds(&a, value) || holds(&b, value));
                prop_assert_eq!(holds(&common, value), holds(&a, value) && holds(&b, value));
                prop_assert_eq!(holds(&rest, value), !holds(&a, value));
            }
            for set in [union, common, rest] {
                prop_assert!(set.0.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0), "{:?}", set);
            }
        }
    }

    #[test]
    fn the_ends_of_the_numbers_do_not_overflow() {
        let all: Intervals = [(0, u128::MAX)].into_iter().collect();
        assert!(all.complement(u128::MAX).is_empty());
        let top: Intervals = [(5, 9), (u128::MAX, u128::MAX)].into_iter().collect();
        assert_eq!(top.complement(u128::MAX).0, [(0, 4), (10, u128::MAX - 1)]);
    }
}

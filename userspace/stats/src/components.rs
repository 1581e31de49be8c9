//! Variance between groups beside variance within them.

/// Of a value that was measured several times in each of several groups.
///
/// Model: value = mean + its group's effect + its own, independent and with one variance each (one-way, random effects). Searle, Casella
/// and McCulloch, "Variance Components", chapter 3.6: the estimators of the analysis of variance, for groups of different sizes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Components {
    /// Standard deviation within a group, in the value's unit.
    pub within: f64,
    /// Standard deviation of the groups' effects, in the value's unit; 0 where the means differ no more than values within groups make them.
    pub between: f64,
    /// Of all values.
    pub mean: f64,
}

impl Components {
    /// Of groups of values; nothing of fewer than two groups, or where no group has two values.
    #[must_use]
    pub fn of(groups: &[Vec<f64>]) -> Option<Self> {
        let groups: Vec<&Vec<f64>> = groups.iter().filter(|group| !group.is_empty()).collect();
        let count = groups.iter().map(|group| group.len()).sum::<usize>() as f64;
        let number = groups.len() as f64;
        if groups.len() < 2 || count <= number {
            return None;
        }
        let average = |group: &[f64]| group.iter().sum::<f64>() / group.len() as f64;
        let mean = groups.iter().copied().flatten().sum::<f64>() / count;
        let square = |value: f64| value * value;
        let (mut inside, mut outside, mut sizes) = (0.0, 0.0, 0.0);
        for group in &groups {
            let own = average(group);
            let size = group.len() as f64;
            inside += group.iter().map(|value| square(value - own)).sum::<f64>();
            outside += size * square(own - mean);
            sizes += square(size);
        }
        let (inside, outside) = (inside / (count - number), outside / (number - 1.0));
        let size = (count - sizes / count) / (number - 1.0);
        Some(Self {
            within: inside.sqrt(),
            between: ((outside - inside) / size).max(0.0).sqrt(),
            mean,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_that_differ_are_told_from_values_that_do() {
        // Means 1, 3 and 5, values 0.1 above and below.
        let groups = [1.0, 3.0, 5.0].map(|mean| vec![mean - 0.1, mean + 0.1]);
        let found = Components::of(&groups).unwrap();
        assert!((found.within - 0.02_f64.sqrt()).abs() < 1e-12, "{found:?}");
        // MSB = 2·(4+0+4)/2 = 8, so (8 - 0.02)/2.
        assert!((found.between - 3.99_f64.sqrt()).abs() < 1e-12, "{found:?}");
        assert_eq!(found.mean, 3.0);
        let same = Components::of(&[vec![1.0, 2.0], vec![2.0, 1.0]]).unwrap();
        assert_eq!(same.between, 0.0);
    }

    #[test]
    fn too_little_says_nothing() {
        assert_eq!(Components::of(&[vec![1.0, 2.0]]), None);
        assert_eq!(Components::of(&[vec![1.0], vec![2.0], Vec::new()]), None);
    }
}

//! "Did you mean": the candidate nearest to a misspelling by Damerau-Levenshtein distance (an insertion, deletion,
//! substitution or exchange of neighbors costs 1), compared without regard to case; or, of a word that was cut short,
//! the only candidate that begins so.

/// The nearest of `candidates`, if it is near enough to be a plausible slip: a third of the letters, at least one.
#[must_use]
pub fn closest<'c>(written: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    /// Letters from which on a beginning says which word is meant.
    const BEGINNING: usize = 3;
    // A long text is no slip of a keyword, and the distance is quadratic.
    if written.chars().count() > 40 {
        return None;
    }
    let written = written.to_lowercase().replace('-', "_");
    let candidates: Vec<&str> = candidates.into_iter().collect();
    if written.chars().count() >= BEGINNING {
        let mut longer = candidates
            .iter()
            .filter(|candidate| candidate.to_lowercase().starts_with(&written));
        if let (Some(only), None) = (longer.next(), longer.next()) {
            return Some(only);
        }
    }
    candidates
        .into_iter()
        .map(|candidate| {
            let plain = candidate.to_lowercase().replace('-', "_");
            (distance(&written, &plain), plain.chars().count(), candidate)
        })
        .filter(|&(distance, length, _)| {
            distance <= (length.max(written.chars().count()) / 3).max(1) && distance < length
        })
        .min_by_key(|&(distance, ..)| distance)
        .map(|(.., candidate)| candidate)
}

/// Optimal string alignment distance.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut before = vec![0; b.len() + 1];
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for (i, &ca) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, &cb) in b.iter().enumerate() {
            let substituted = above[j] + usize::from(ca != cb);
            let mut best = substituted.min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && ca == b[j - 1] && a[i - 1] == cb {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_slips_and_leaves_other_words_alone() {
        let keys = ["latency", "bandwidth", "gap", "buffer", "jitter", "loss"];
        assert_eq!(closest("lattency", keys), Some("latency"));
        assert_eq!(closest("bandwith", keys), Some("bandwidth"));
        assert_eq!(closest("gpa", keys), Some("gap"));
        assert_eq!(closest("Loss", keys), Some("loss"));
        assert_eq!(closest("colour", keys), None);
        assert_eq!(closest("x", keys), None);
        assert_eq!(closest("prot", ["port", "protocol"]), Some("protocol"));
        assert_eq!(closest("band", keys), Some("bandwidth"));
        assert_eq!(
            closest("gilbert-elliott", ["gilbert_elliott"]),
            Some("gilbert_elliott")
        );
    }

    #[test]
    fn counts_an_exchange_once() {
        assert_eq!(distance("ab", "ba"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
    }
}

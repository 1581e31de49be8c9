//! What was judged, for those who test by it.

/// One thing that was judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// What.
    pub name: String,
    /// What was found, for people.
    pub said: String,
    /// Whether it is as it should be.
    pub passes: bool,
}

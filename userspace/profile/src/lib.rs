//! The YAML profile.

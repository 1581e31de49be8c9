//! The profiles that perturb brings along, by name: `mobile-lte` is `configs/mobile-lte.yaml`.

/// A name with its text, for each file in a folder.
macro_rules! texts {
    ($folder:literal: $($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../../configs/", $folder, $name, ".yaml")))),*]
    };
}

/// Those of networks.
const NETWORKS: &[(&str, &str)] = texts! { "":
    "alewife-4x4" "alewife-4x8" "branch-offices" "bus-ethernet-10" "cable" "dsl" "incast" "incast-10mbit" "lan-1gbit" "loggp-knobs" "martin-now"
    "mobile-3g" "mobile-lte" "nfs-over-wan" "plogpt-2007" "plogpt-5ms" "plogpt-table2" "plogpt-today" "satellite" "simple"
    "three-regions" "wan-lossy"
};
/// Those of networks that change.
const SCENARIOS: &[(&str, &str)] = texts! { "scenarios/":
    "black-hole" "bufferbloat" "bursty-loss" "busy-host" "cable-evening" "flapping-link" "half-bandwidth" "latency-ramp"
    "leo-handover" "lte-drive" "mmwave-blockage" "partition" "recorded" "wifi-suspended"
};
/// The files that they name.
const FILES: &[(&str, &str)] = &[
    (
        "branch-offices.csv",
        include_str!("../../../configs/branch-offices.csv"),
    ),
    (
        "sawtooth.csv",
        include_str!("../../../configs/scenarios/sawtooth.csv"),
    ),
];

/// Matrices between groups.
const MATRICES: &[(&str, &str)] = &[
    (
        "aws-regions",
        include_str!("../../../configs/matrices/aws-regions.csv"),
    ),
    (
        "ibm-regions",
        include_str!("../../../configs/matrices/ibm-regions.csv"),
    ),
];

fn find(texts: &[(&str, &'static str)], wanted: &str) -> Option<&'static str> {
    texts
        .iter()
        .find(|(name, _)| *name == wanted)
        .map(|(_, text)| *text)
}

/// The text of the profile of this name.
pub(crate) fn profile(name: &str) -> Option<&'static str> {
    find(NETWORKS, name).or_else(|| find(SCENARIOS, name))
}

/// The text of a file that one of them names.
pub(crate) fn file(name: &str) -> Option<&'static str> {
    find(FILES, name)
}

/// The text of the matrix of this name.
pub(crate) fn matrix(name: &str) -> Option<&'static str> {
    find(MATRICES, name)
}

/// The names of all matrices.
pub(crate) fn matrices() -> impl Iterator<Item = &'static str> {
    MATRICES.iter().map(|(name, _)| *name)
}

/// The names of all profiles.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    NETWORKS.iter().chain(SCENARIOS).map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::Path};

    use super::{names, profile};

    #[test]
    fn each_profile_of_the_repository_has_its_name() {
        let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
        let mut there = BTreeSet::new();
        for folder in [configs.clone(), configs.join("scenarios")] {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.extension().is_some_and(|extension| extension == "yaml") {
                    let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
                    assert_eq!(
                        profile(&name),
                        Some(&*std::fs::read_to_string(path).unwrap()),
                        "{name}"
                    );
                    assert!(there.insert(name));
                }
            }
        }
        assert_eq!(names().map(str::to_owned).collect::<BTreeSet<_>>(), there);
    }
}

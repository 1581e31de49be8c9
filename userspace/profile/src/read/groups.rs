//! Reads groups, and the matrix between them: its pairs as servers and classes.

use std::collections::{HashMap, HashSet};

use perturb_common::abi::MAX_CLASSES;
use perturb_quantity::closest;

use crate::diagnostic::Problem;
use crate::expand::shared;
use crate::findings::{Findings, KeyPath};
use crate::groups::{Group, Matrix, treatment};
use crate::keys::{self, ALTERNATIVES};
use crate::matching::{HostName, Match};
use crate::model::{Class, Name, Server, ServerId};
use crate::read::class::ServerNames;
use crate::read::{self, At, Fields};
use crate::regions::Regions;
use crate::yaml::Kind;

/// What reads the table of a matrix, if it can.
pub(crate) type Tables<'t> = dyn FnMut(&Matrix) -> Option<Regions> + 't;

/// How a matrix is to be read.
pub(crate) struct Reading<'t> {
    /// The tables.
    pub(crate) tables: &'t mut Tables<'t>,
    /// Every host has the profile: nobody emulates for others.
    pub(crate) everyone: bool,
}

pub(crate) type Groups = Vec<(Name, Group)>;

/// Groups by name.
pub(crate) fn groups(at: At<'_>, findings: &mut Findings<'_>) -> Option<Groups> {
    let mut hosts: HashMap<HostName, usize> = HashMap::new();
    let named = at.named(MAX_CLASSES as usize, findings, |at, findings| {
        let fields = Fields::of(at, &keys::GROUP, &[], findings)?;
        if ["prefix", "host", "container", "interface"]
            .iter()
            .all(|key| !fields.has(key))
        {
            let (key, example) = ("host", "host: [h1, h2]");
            fields.report_whole(Problem::MissingKey { key, example }, findings);
        }
        let prefix = fields.read("prefix", findings, |at, f| {
            at.one_or_more(ALTERNATIVES, f, read::prefix)
        });
        let host = fields.read("host", findings, |at, f| {
            at.one_or_more(ALTERNATIVES, f, |at, f| {
                let name = read::host(at, f)?;
                if let Some(&first_line) = hosts.get(&name) {
                    at.report(Problem::DuplicateKey { first_line }, f);
                }
                hosts.insert(name.clone(), at.node.place.line);
                Some(name)
            })
        });
        let interface = fields.read("interface", findings, |at, f| {
            at.one_or_more(ALTERNATIVES, f, read::name)
        });
        let container = fields.read("container", findings, |at, f| {
            at.one_or_more(ALTERNATIVES, f, |at, f| at.prose(keys::MAX_TEXT, f))
        });
        Some(Group {
            container: container.unwrap_or_default(),
            interface: interface.unwrap_or_default(),
            prefix: prefix.unwrap_or_default(),
            host: host.unwrap_or_default(),
        })
    })?;
    let groups: Groups = named
        .into_iter()
        .map(|(name, group)| (name, group.unwrap_or_default()))
        .collect();
    let all = groups.iter().enumerate();
    let all = all.flat_map(|(number, (_, group))| group.prefix.iter().map(move |&one| (number, one)));
    if let Some((one, _, _)) = shared(all.collect())
        && let Some((name, _)) = groups.get(one)
    {
        let (why, remedy) = (
            "an address of it is in another group",
            "give every address to one group",
        );
        of_group(at, name, Problem::Unfit { why, remedy }, findings);
    }
    Some(groups)
}

/// Reports a problem of a group, at its name.
fn of_group(groups: At<'_>, name: &Name, problem: Problem, findings: &mut Findings<'_>) {
    if let Kind::Map(entries) = &groups.node.kind
        && let Some(entry) = entries.iter().find(|entry| entry.key == name.as_str())
    {
        findings.report(entry.key_place, groups.path.key(&entry.key), problem);
    }
}

/// Names of groups, as a match has them.
pub(crate) fn names(at: At<'_>, groups: &Groups, findings: &mut Findings<'_>) -> Option<Vec<Name>> {
    at.one_or_more(ALTERNATIVES, findings, |at, f| member(at, groups, f))
}

fn member(at: At<'_>, groups: &Groups, findings: &mut Findings<'_>) -> Option<Name> {
    let name = read::name(at, findings)?;
    if !groups.iter().any(|(known, _)| *known == name) {
        let known: Vec<&Name> = groups.iter().map(|(name, _)| name).collect();
        at.report(unknown("a group", name.as_str(), &known), findings);
        return None;
    }
    Some(name)
}

fn unknown(what: &'static str, text: &str, known: &[&Name]) -> Problem {
    let known = || known.iter().map(|name| name.as_str());
    Problem::UnknownName {
        what,
        suggestion: closest(text, known()).map(str::to_owned),
        // More names than this would bury the message.
        known: known().take(40).map(str::to_owned).collect(),
    }
}

/// A matrix, and the servers and classes that it stands for.
#[derive(Default)]
pub(crate) struct Written {
    /// If its table could not be read.
    pub(crate) matrix: Option<Matrix>,
    pub(crate) servers: Vec<(Name, Server)>,
    pub(crate) classes: Vec<Class>,
}

/// The matrix of a profile, for the `groups` and behind so many servers.
pub(crate) fn matrix(
    fields: &Fields<'_>,
    groups: &Groups,
    behind: usize,
    reading: &mut Reading<'_>,
    findings: &mut Findings<'_>,
) -> Written {
    if fields.has("matrix") && !fields.has("groups") {
        let why = "a matrix says what lies between groups";
        fields.needs("matrix", "groups", why, findings);
    }
    if fields.has("matrix") && fields.has("topology") {
        let why = "both say what packets between hosts cross";
        let other = "topology";
        fields.report("matrix", Problem::Excludes { other, why }, findings);
    }
    let written = fields.read("matrix", findings, |at, findings| {
        let mut matrix = read_matrix(at, groups, findings)?;
        if reading.everyone {
            matrix.here = None;
        }
        let regions = (reading.tables)(&matrix);
        if let (Some(regions), Some(node)) = (&regions, fields.node("groups")) {
            let path = &KeyPath::ROOT.key("groups");
            check_names(At { node, path }, regions, findings);
        }
        Some(write_out(
            at,
            matrix,
            regions.as_ref(),
            (groups, behind),
            findings,
        ))
    });
    written.unwrap_or_default()
}

fn read_matrix(at: At<'_>, groups: &Groups, findings: &mut Findings<'_>) -> Option<Matrix> {
    let file = |at: At<'_>, f: &mut Findings<'_>| at.prose(keys::MAX_TEXT, f);
    if let Kind::Scalar(_) = at.node.kind {
        return Some(Matrix {
            file: file(at, findings)?,
            symmetric: false,
            round_trip: false,
            here: None,
        });
    }
    let fields = Fields::of(at, &keys::MATRIX, &[], findings)?;
    let flag = |key, findings: &mut Findings<'_>| fields.read(key, findings, read::flag).unwrap_or_default();
    let here = fields.read("here", findings, |at, f| member(at, groups, f));
    let symmetric = flag("symmetric", findings);
    let round_trip = flag("round_trip", findings);
    let file = fields.require("file", "file: regions.csv", findings, file)?;
    Some(Matrix {
        file,
        symmetric,
        round_trip,
        here,
    })
}

/// Each group must stand in the table.
fn check_names(at: At<'_>, regions: &Regions, findings: &mut Findings<'_>) {
    let Kind::Map(entries) = &at.node.kind else { return };
    let known: Vec<&Name> = regions.names().iter().collect();
    for entry in entries {
        if Name::new(&entry.key).is_some_and(|name| !known.contains(&&name)) {
            let problem = unknown("a group of the matrix", &entry.key, &known);
            findings.report(entry.key_place, at.path.key(&entry.key), problem);
        }
    }
}

/// The pairs of a matrix, in order.
fn pairs<'g>(groups: &'g Groups, matrix: &Matrix) -> Vec<(&'g Name, &'g Name)> {
    let names = || groups.iter().map(|(name, _)| name);
    match &matrix.here {
        None => names()
            .flat_map(|from| names().map(move |to| (from, to)))
            .collect(),
        Some(here) => {
            let here = names().filter(move |name| *name == here);
            here.flat_map(|here| {
                names().flat_map(move |other| {
                    let back = (other != here).then_some((other, here));
                    [Some((here, other)), back].into_iter().flatten()
                })
            })
            .collect()
        }
    }
}

fn write_out(
    at: At<'_>,
    matrix: Matrix,
    regions: Option<&Regions>,
    (groups, behind): (&Groups, usize),
    findings: &mut Findings<'_>,
) -> Written {
    let count = match matrix.here {
        None => groups.len().saturating_mul(groups.len()),
        Some(_) => groups.len(),
    };
    if count > MAX_CLASSES as usize {
        let why = "each pair of groups is a class, and there can be 4096: those of 64 groups";
        at.unfit(why, "use fewer groups, or say which one is `here`", findings);
        return Written::default();
    }
    let mut written = Written::default();
    let mut missing: Vec<(&Name, &Name)> = Vec::new();
    let mut ids: HashMap<(&Name, &Name), ServerId> = HashMap::new();
    let pairs = pairs(groups, &matrix);
    for &(from, to) in &pairs {
        let server = match regions {
            None => Server::default(),
            Some(regions) => {
                let back = || matrix.symmetric.then(|| regions.between(to, from)).flatten();
                match regions.between(from, to).or_else(back) {
                    Some(server) => server.clone(),
                    // Nothing delays them.
                    None if from == to => continue,
                    None => {
                        let known = |name| regions.names().contains(name);
                        if known(from) && known(to) {
                            missing.push((from, to));
                        }
                        continue;
                    }
                }
            }
        };
        let (Some(name), Some(id)) = (
            Matrix::pair(from, to),
            ServerId::new(behind + written.servers.len()),
        ) else {
            let why = "the name of a pair, FROM-to-TO, would have more than 63 letters";
            at.unfit(why, "use shorter names of groups", findings);
            return Written::default();
        };
        ids.insert((from, to), id);
        written.servers.push((name, server));
    }
    if !missing.is_empty() {
        let one_way = |&&(from, to): &&(&Name, &Name)| {
            regions
                .as_ref()
                .is_some_and(|regions| regions.between(to, from).is_some())
        };
        let problem = Problem::MissingPairs {
            reversed: missing.iter().filter(one_way).count() == missing.len(),
            pairs: missing
                .iter()
                .map(|(from, to)| format!("{from} to {to}"))
                .collect(),
        };
        at.report(problem, findings);
    }
    written.classes = classes(&pairs, &ids, &matrix);
    written.matrix = regions.is_none().then_some(matrix);
    written
}

/// A class for each pair of which this host has one end.
fn classes(pairs: &[(&Name, &Name)], ids: &HashMap<(&Name, &Name), ServerId>, matrix: &Matrix) -> Vec<Class> {
    let class = |&(from, to): &(&Name, &Name)| {
        let (local_group, ingress) = match &matrix.here {
            None => (vec![from.clone()], None),
            Some(here) if here == from => (Vec::new(), ids.get(&(to, from)).copied()),
            Some(_) => return None,
        };
        Some(Class {
            name: Matrix::pair(from, to)?,
            matching: Match {
                group: vec![to.clone()],
                local_group,
                ..Match::default()
            },
            treatment: treatment(*ids.get(&(from, to))?, ingress),
        })
    };
    pairs.iter().filter_map(class).collect()
}

/// Reports names of pairs that something else has.
pub(crate) fn check_names_of_pairs(
    fields: &Fields<'_>,
    written: &Written,
    (servers, classes): (&[(Name, Server)], &[Class]),
    findings: &mut Findings<'_>,
) {
    let mut servers: HashSet<&Name> = servers.iter().map(|(name, _)| name).collect();
    let mut classes: HashSet<&Name> = classes.iter().map(|class| &class.name).collect();
    let taken = written.servers.iter().any(|(name, _)| !servers.insert(name))
        || written.classes.iter().any(|class| !classes.insert(&class.name));
    if taken {
        let why = "a server or a class has the name of a pair, FROM-to-TO, already";
        fields.unfit("matrix", why, "rename it, or the groups", findings);
    }
}

/// The servers that a path may name, those of the matrix among them.
pub(crate) fn server_names<'s>(servers: &'s [(Name, Server)], written: &'s Written) -> ServerNames<'s> {
    ServerNames::new(servers.iter().chain(&written.servers).map(|(name, _)| name))
}

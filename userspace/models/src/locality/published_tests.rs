//! The paper's Tables 1 and 2, from `tests/data`. (Tables 4 to 7 are compared in [`crate::published`].)

use std::path::PathBuf;

use super::*;

fn data(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn table(name: &str) -> Vec<Vec<String>> {
    let rows = data(name);
    rows.lines()
        .skip(2)
        .map(|line| line.split(',').map(str::to_owned).collect())
        .collect()
}

fn locality(text: &str, method: Method) -> f64 {
    let document = parse(text).unwrap();
    Partitioning::by(method, &document).unwrap().locality().locality
}

#[test]
fn every_published_answer() {
    let expected: serde_json::Value = serde_json::from_str(&data("locality/expected.json")).unwrap();
    let mut compared = 0;
    for (file, answer) in expected
        .as_object()
        .unwrap()
        .iter()
        .filter(|(file, _)| file.ends_with(".txt"))
    {
        let text = data(&format!("locality/{file}"));
        let document = parse(&text).unwrap();
        let ours = Partitioning::by(document.method.unwrap(), &document)
            .unwrap()
            .locality()
            .locality;
        let (paper, tolerance) = (
            answer["locality"].as_f64().unwrap(),
            answer["tolerance"].as_f64().unwrap(),
        );
        assert!(
            (ours - paper).abs() <= tolerance,
            "{file}: {ours} against {paper}"
        );
        compared += 1;
    }
    assert_eq!(compared, 9);
}

#[test]
fn table_1_simple_sequences() {
    let rows = table("tables/locality-table1-simple.csv");
    assert_eq!(rows.len(), 12);
    for row in rows {
        let [requests, method, partitions, paper] = &row[..] else {
            panic!("{row:?}")
        };
        let cuts = partitions.replace('|', " | ");
        let text = if method == "given" { &cuts } else { requests };
        let ours = locality(text, method.parse().unwrap());
        let paper: f64 = paper.parse().unwrap();
        assert!((ours - paper).abs() <= 0.0051, "{row:?}: {ours}");
        // The printed partitions are those of the method.
        let printed = parse(&cuts).unwrap();
        let document = parse(text).unwrap();
        if printed.sequence.len() == document.sequence.len() {
            let ours = Partitioning::by(method.parse().unwrap(), &document).unwrap();
            assert_eq!(
                ours,
                Partitioning::by(Method::Given, &printed).unwrap(),
                "{row:?}"
            );
        }
    }
}

#[test]
fn table_2_disjoint_loops() {
    let rows = table("tables/locality-table2-disjoint-loops.csv");
    assert_eq!(rows.len(), 11);
    for row in rows {
        let [notation, method, count, paper] = &row[..] else {
            panic!("{row:?}")
        };
        let document = parse(notation).unwrap();
        let found = Partitioning::by(method.parse().unwrap(), &document).unwrap();
        let paper: f64 = paper.parse().unwrap();
        // 6.2854 is printed as 6.28.
        assert!(
            (found.locality().locality - paper).abs() <= 0.0056,
            "{row:?}: {found:?}"
        );
        assert_eq!(found.partitions.len(), count.parse::<usize>().unwrap(), "{row:?}");
    }
}

#[test]
fn the_optimum_of_the_published_sequences() {
    // No published partitioning is better than the exact optimum, and for disjoint loops of Table 2
    // the natural one is the optimum.
    for notation in [
        "(1 2 3 4)^40",
        "(1 2 3 3)^20 (4 5 6 6)^20",
        "(1 2 3 4)^30 (5 6 7 8)^10",
    ] {
        let natural = locality(notation, Method::Natural);
        let optimal = locality(notation, Method::Optimal);
        assert!(
            (natural - optimal).abs() < 1e-12,
            "{notation}: {natural} {optimal}"
        );
    }
}

#[test]
fn errors_name_line_and_column() {
    let error = |text: &str| parse(text).map(|_| ()).map_err(|error| error.to_string());
    let problem = |text: &str| parse(text).unwrap_err().problem;
    assert!(
        error("1 2\n(3 4")
            .unwrap_err()
            .starts_with("line 2, column 1: `(` opens")
    );
    assert_eq!(problem("1 )^2"), Problem::Unopened);
    assert_eq!(problem("()^2"), Problem::EmptyLoop);
    assert_eq!(problem("(1 2) 3"), Problem::NoCount);
    assert_eq!(problem("(1 2)"), Problem::NoCount);
    assert_eq!(problem("(1 2)^0"), Problem::Count { text: "0".into() });
    assert_eq!(problem("(1 2)^x"), Problem::Count { text: "x".into() });
    assert_eq!(problem("1 ^2"), Problem::StrayCaret);
    assert_eq!(problem("| 1"), Problem::EmptyPartition);
    assert_eq!(problem("1 | | 2"), Problem::EmptyPartition);
    assert_eq!(problem("1 2 |"), Problem::EmptyPartition);
    assert_eq!(problem("((1 2)^1000000)^1000000"), Problem::TooLong);
    assert_eq!(problem("# nothing\n"), Problem::NoRequests);
    assert_eq!(
        problem("1\npartition: single\npartition: natural"),
        Problem::SecondMethod { first: 2 }
    );
    assert!(matches!(
        problem("partition: paths\n1"),
        Problem::Method(PartitionError::Number { .. })
    ));
    assert!(matches!(
        problem("partition: best\n1"),
        Problem::Method(PartitionError::Unknown { .. })
    ));
    assert!(matches!(
        problem("partition: paths 0\n1"),
        Problem::Method(PartitionError::Number { .. })
    ));
    assert!(matches!(
        problem("1 | 2\npartition: single"),
        Problem::UnusedCut {
            method: Method::Single
        }
    ));
}

#[test]
fn labels_cuts_and_nesting() {
    let document = parse("((a->b 10.0.0.1,2)^2 c | d)^2  # trailing\npartition: given").unwrap();
    assert_eq!(document.sequence.len(), 12);
    assert_eq!(document.loops.first(), Some(&(0..12)));
    assert_eq!(document.cuts.as_deref(), Some(&[5, 11][..]));
    assert_eq!(document.sequence.label(1), "10.0.0.1,2");
}

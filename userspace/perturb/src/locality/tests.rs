//! The command on files of every format, and its options.

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: LocalityArgs,
}

fn data(name: &str) -> String {
    format!(
        "{}/../models/tests/data/locality/{name}",
        env!("CARGO_MANIFEST_DIR")
    )
}

fn output(arguments: &[&str]) -> anyhow::Result<String> {
    let command = Command::try_parse_from(["locality"].iter().chain(arguments))?;
    let mut out = Vec::new();
    run(&command.args, &mut out)?;
    Ok(String::from_utf8(out)?)
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&output(arguments).unwrap()).unwrap()
}

fn file(content: &[u8]) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("requests");
    std::fs::write(&path, content).unwrap();
    let name = path.display().to_string();
    (folder, name)
}

#[test]
fn the_keys_of_the_contract() {
    let found = json(&[&data("table1-b-paths2.txt"), "--json"]);
    for key in ["locality", "spatial", "temporal", "alternative"] {
        assert!(found[key].is_f64(), "{key}: {found}");
    }
    let partitions = found["partitions"].as_array().unwrap();
    assert_eq!(partitions.len(), 3);
    assert_eq!(partitions[1], serde_json::json!({ "requests": 4, "paths": 2 }));
}

#[test]
fn options_add_working_sets_and_costs() {
    let path = data("table2-b-natural.txt");
    let found = json(&[&path, "--json", "--working-sets", "--network", "100,6,3"]);
    assert_eq!(
        found["partitions"][1]["working_set"],
        serde_json::json!(["4", "5", "6"])
    );
    // Two partitions of 80 requests over three paths: 2 (100 + 6 x 1 x 80 / (2 x 3)).
    assert_eq!(found["network"]["cost"]["total"], 360.0);
    assert_eq!(found["network"]["multiplexing"], serde_json::json!([1, 1]));
    let found = json(&[&path, "--json", "--network", "100,6,2", "--partition", "single"]);
    assert_eq!(found["network"]["multiplexing"], serde_json::json!([3]));
    assert_eq!(found["network"]["cost"]["total"], 100.0 + 6.0 * 3.0 * 160.0 / 4.0);
    let text = output(&[&path, "--partition", "paths 1"]).unwrap();
    assert!(
        text.contains("120 partitions") && text.contains("and 80 more"),
        "{text}"
    );
}

#[test]
fn the_decision_is_that_of_the_loops_whatever_the_partitioning() {
    // Table 4: L = 3.54 natural, 4.44 single.
    let (_folder, name) = file(b"(1 2 3 4)^20 (3 4 5 6)^20");
    let of = |method| json(&[&name, "--json", "--partition", method])["decision"].clone();
    let found = of("natural");
    assert!(
        (found["d"].as_f64().unwrap() - 3.5355 / 4.4444).abs() < 1e-4,
        "{found}"
    );
    assert!(
        (found["d_alternative"].as_f64().unwrap() - 9.0 / 8.0).abs() < 1e-12,
        "{found}"
    );
    assert_eq!(
        (&found["natural_always"], &found["single_always"]),
        (&false.into(), &false.into())
    );
    assert_eq!(found, of("single"));
    assert_eq!(found, of("paths 1"));
    let text = output(&[&name, "--partition", "single"]).unwrap();
    assert!(text.contains("natural to single   0.7955   (6)"), "{text}");
}

#[test]
fn grouped_joins_as_many_loops_as_it_says() {
    let (_folder, name) = file(b"(1 2)^5 (3 4)^5 (1 3)^5 (5)^5 (6)^5");
    let found = json(&[&name, "--json", "--partition", "grouped 2"]);
    assert_eq!(
        found["partitions"],
        serde_json::json!([{"requests": 20, "paths": 4}, {"requests": 15, "paths": 3}, {"requests": 5, "paths": 1}])
    );
}

#[test]
fn thresholds_and_experiment_need_no_file() {
    let found = json(&["--thresholds", "2", "--json"]);
    for (pointer, printed) in [
        ("/equal_loops/natural_at_most", 0.59),
        ("/equal_loops/single_at_least", 0.71),
        ("/core_paths/natural_at_most", 0.32),
        ("/core_paths/single_at_least", 0.59),
        ("/shifting_paths/natural_at_most", 0.64),
        ("/admissible/natural_at_most", 0.14),
        ("/alternative/equal_loops/natural_at_most", 0.71),
    ] {
        let ours = found.pointer(pointer).and_then(Value::as_f64).unwrap();
        assert!((ours - printed).abs() < 0.006, "{pointer}: {ours}");
    }
    assert_eq!(found["loops"], 2);
    assert!(output(&["--thresholds", "3"]).unwrap().contains("0.634"));
    assert!(Command::try_parse_from(["locality", "--thresholds", "1"]).is_err());
    assert!(Command::try_parse_from(["locality", "--thresholds", "2", "file"]).is_err());
    let options = [
        "--experiment",
        "50",
        "--network",
        "100,1,8",
        "--loops",
        "2",
        "--json",
    ];
    let found = json(&options);
    assert!(found["correlation"].as_f64().unwrap() > 0.5, "{found}");
    assert_eq!(
        (&found["programs"], found["points"].as_array().unwrap().len()),
        (&50.into(), 50)
    );
    let point = &found["points"][0];
    assert_eq!(point["loops"].as_array().unwrap().len(), 2);
    assert!(
        point["loops"][0]["iterations"].as_u64().unwrap() >= 3000 && point["cost"].is_f64(),
        "{point}"
    );
    let text = output(&options[..6]).unwrap();
    assert!(
        text.contains("50 random programs") && text.contains("of 2 loops"),
        "{text}"
    );
}

#[test]
fn json_lines_and_detected_loops() {
    let lines: String = (0..30)
        .map(|index| {
            format!(
                "{{\"src\": \"h{}\", \"destination\": {}, \"bytes\": 1}}\n",
                index % 3,
                index % 3
            )
        })
        .collect();
    let (_folder, name) = file(lines.as_bytes());
    let found = json(&[&name, "--json"]);
    assert_eq!(
        (&found["method"], &found["paths"]),
        (&"natural".into(), &3.into())
    );
    assert_eq!(
        found["partitions"],
        serde_json::json!([{ "requests": 30, "paths": 3 }])
    );
}

#[test]
fn an_array_says_what_lines_say() {
    let (_lines, lines) = file(b"{\"source\": \"a\", \"destination\": 1}\n{\"src\": 2, \"dst\": \"b\"}\n");
    let (_array, array) = file(b"[{\"source\": \"a\", \"destination\": 1},\n{\"src\": 2, \"dst\": \"b\"}]");
    assert_eq!(json(&[&lines, "--json"]), json(&[&array, "--json"]));
    let (_empty, empty) = file(b"[]");
    let error = output(&[&empty]).unwrap_err();
    assert!(format!("{error:#}").contains("no requests"), "{error:#}");
}

#[test]
fn what_is_wrong_is_said_and_is_the_input_s_fault() {
    let cases: [(&[u8], &[&str], &str); 10] = [
        (
            b"[{\"src\": 1, \"dst\": 2}, {\"dst\": 2}]",
            &[],
            "object 2: `source` is missing",
        ),
        (b"[1, ", &[], "not an array of objects"),
        (b"[[]]", &[], "object 1: `source` is missing"),
        (b"1 2", &[], "no partitioning is named"),
        (b"1 2", &["--partition", "best"], "--partition: partition `best`"),
        (b"1 (2", &[], "line 1, column 3"),
        (b"\xff\xfe", &[], "not a text in UTF-8 at byte 0"),
        (b"{\"src\": 1}", &[], "line 1: `destination` is missing"),
        (b"{\"src\": ", &[], "line 1: EOF"),
        (
            b"1\npartition: single",
            &["--network", "1,2,3,4"],
            "give three numbers E,A,m",
        ),
    ];
    for (content, options, expected) in cases {
        let (_folder, name) = file(content);
        let error = output(&[&[name.as_str()], options].concat()).unwrap_err();
        assert!(format!("{error:#}").contains(expected), "{error:#}");
        assert!(is_invalid_input(&error), "{error:#}");
    }
    assert!(is_invalid_input(&output(&["/nonexistent"]).unwrap_err()));
}

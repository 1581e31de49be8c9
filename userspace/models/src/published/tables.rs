//! The papers' tables, embedded with their citations: the only place that has them, and their only reader.
//!
//! A table is a file of `tests/data/tables`: a line with the citation, one with the names of the columns, then rows.
//! An empty cell has no value in print.

/// A published table as text.
#[derive(Clone, Copy, Debug)]
pub struct Embedded {
    /// Paper, label and subject, as `martin-B.10-nfs-scsi-latency`.
    pub name: &'static str,
    /// The whole file.
    pub text: &'static str,
}

macro_rules! embedded {
    ($($constant:ident = $name:literal;)*) => {
        $(
            #[doc = concat!("`", $name, "`")]
            pub const $constant: Embedded = Embedded {
                name: $name,
                text: include_str!(concat!("../../tests/data/tables/", $name, ".csv")),
            };
        )*

        /// All of them.
        pub const ALL: &[Embedded] = &[$($constant),*];
    };
}

embedded! {
    MARTIN_2_1 = "martin-2.1-baseline-parameters";
    MARTIN_2_2 = "martin-2.2-calibration";
    MARTIN_3_1 = "martin-3.1-run-times";
    MARTIN_3_2 = "martin-3.2-communication";
    MARTIN_3_3 = "martin-3.3-overhead-model";
    MARTIN_3_4 = "martin-3.4-gap-model";
    MARTIN_4_1 = "martin-4.1-npb-communication";
    MARTIN_4_2 = "martin-4.2-npb-overhead-model";
    MARTIN_4_3 = "martin-4.3-npb-bandwidth-model";
    MARTIN_5_1 = "martin-5.1-nfs-regression";
    MARTIN_6_1 = "martin-6.1-gam-pipeline";
    MARTIN_A_1 = "martin-A.1-nfs-scsi-baseline";
    MARTIN_A_5 = "martin-A.5-nfs-raid-baseline";
    MARTIN_B_1 = "martin-B.1-overhead-16-nodes";
    MARTIN_B_2 = "martin-B.2-overhead-32-nodes";
    MARTIN_B_3 = "martin-B.3-gap-32-nodes";
    MARTIN_B_4 = "martin-B.4-latency-32-nodes";
    MARTIN_B_5 = "martin-B.5-bandwidth-32-nodes";
    MARTIN_B_6 = "martin-B.6-npb-overhead";
    MARTIN_B_7 = "martin-B.7-npb-gap";
    MARTIN_B_8 = "martin-B.8-npb-latency";
    MARTIN_B_9 = "martin-B.9-npb-bandwidth";
    MARTIN_B_10 = "martin-B.10-nfs-scsi-latency";
    MARTIN_B_11 = "martin-B.11-nfs-raid-latency";
    MARTIN_B_12 = "martin-B.12-nfs-raid-overhead";
    MARTIN_B_13 = "martin-B.13-nfs-scsi-overhead";
    MARTIN_B_14 = "martin-B.14-nfs-scsi-bandwidth";
    LBF_FIG10 = "lbf-fig10-lbf-and-nf-validation";
    LBF_FIG3 = "lbf-fig3-events";
    LBF_FIG5 = "lbf-fig5-rows";
    LBF_FIG6 = "lbf-fig6-message-times";
    LBF_FIG7 = "lbf-fig7-lbf-validation";
    LBF_FIG8 = "lbf-fig8-monitoring-overhead";
    LBF_FIG9 = "lbf-fig9-nf-validation";
    LOCALITY_TABLE1 = "locality-table1-simple";
    LOCALITY_TABLE2 = "locality-table2-disjoint-loops";
    LOCALITY_TABLE4 = "locality-table4-overlapping-loops";
    LOCALITY_TABLE6 = "locality-table6-equal-length";
    LOCALITY_TEXT = "locality-text-thresholds";
    LOGPC_TABLE1 = "logpc-table1-short-messages";
    LOGPC_TABLE2 = "logpc-table2-long-messages";
    LOGPC_TABLE4 = "logpc-table4-remap";
    LOGPC_TEXT = "logpc-text-equations";
    PLOGPT_TABLE2 = "plogpt-table2-links";
}

/// The table that a name means: its whole name, or the label in it as the paper prints it, as `B.10` or `lbf-fig7`.
#[must_use]
pub fn find(name: &str) -> Option<Embedded> {
    ALL.iter()
        .copied()
        .find(|table| table.name == name || table.label() == name)
}

impl Embedded {
    /// Where it is printed.
    #[must_use]
    pub fn citation(self) -> &'static str {
        let mut comments = self.text.lines().filter_map(|line| line.strip_prefix('#'));
        comments.next().unwrap_or_default().trim()
    }

    /// What is enough to find it: `B.10` of Martin's, `lbf-fig7` of others.
    #[must_use]
    pub fn label(self) -> &'static str {
        let own = self.name.strip_prefix("martin-").unwrap_or(self.name);
        let parts = if own.len() == self.name.len() { 2 } else { 1 };
        let end = own.match_indices('-').nth(parts - 1);
        end.map_or(own, |(end, _)| &own[..end])
    }

    /// Its rows.
    #[must_use]
    pub fn table(self) -> Table {
        let mut lines = self
            .text
            .lines()
            .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
            // No cell holds a quote.
            .map(|line| line.split(',').map(str::trim).collect::<Vec<_>>());
        Table {
            header: lines.next().unwrap_or_default(),
            rows: lines.collect(),
        }
    }
}

/// A published table.
#[derive(Clone, Debug)]
pub struct Table {
    header: Vec<&'static str>,
    rows: Vec<Vec<&'static str>>,
}

/// One of its rows.
#[derive(Clone, Copy, Debug)]
pub struct Row<'table> {
    table: &'table Table,
    cells: &'table [&'static str],
}

impl Table {
    /// The names of its columns.
    #[must_use]
    pub fn columns(&self) -> &[&'static str] {
        &self.header
    }

    /// Its rows.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(|cells| Row { table: self, cells })
    }

    /// The first row whose `column` holds `value`.
    #[must_use]
    pub fn find(&self, column: &str, value: &str) -> Option<Row<'_>> {
        self.rows().find(|row| row.text(column) == value)
    }
}

impl Row<'_> {
    /// A cell; empty if there is no such column.
    #[must_use]
    pub fn text(&self, column: &str) -> &'static str {
        self.table
            .header
            .iter()
            .position(|name| *name == column)
            .and_then(|index| self.cells.get(index))
            .copied()
            .unwrap_or_default()
    }

    /// A cell as a number; `None` if it is empty.
    #[must_use]
    pub fn number(&self, column: &str) -> Option<f64> {
        self.text(column).parse().ok()
    }

    /// One unit of the last printed digit of a cell.
    #[must_use]
    pub fn last_digit(&self, column: &str) -> f64 {
        let decimals = self
            .text(column)
            .split_once('.')
            .map_or(0, |(_, digits)| digits.len());
        10_f64.powi(-i32::try_from(decimals).unwrap_or(i32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_found_by_name_and_by_label() {
        for table in ALL {
            assert_eq!(find(table.name).map(|found| found.name), Some(table.name));
            assert_eq!(find(table.label()).map(|found| found.name), Some(table.name));
        }
        assert_eq!(find("B.10").map(|found| found.name), Some(MARTIN_B_10.name));
        assert_eq!(find("lbf-fig7").map(|found| found.name), Some(LBF_FIG7.name));
        assert!(find("B.99").is_none());
    }

    #[test]
    fn every_table_has_a_citation_and_whole_rows() {
        for embedded in ALL {
            assert!(embedded.citation().contains(' '), "{}", embedded.name);
            let table = embedded.table();
            assert!(table.rows().count() > 0, "{}", embedded.name);
            for row in table.rows() {
                assert_eq!(
                    row.cells.len(),
                    table.header.len(),
                    "{}: {:?}",
                    embedded.name,
                    row.cells
                );
            }
        }
    }
}

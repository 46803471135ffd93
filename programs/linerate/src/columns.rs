//! Aligns tables for a terminal, also where a character takes two columns or none.

use unicode_width::UnicodeWidthStr;

/// Returns the lines of a table, the header first. Right-aligns the columns whose indices are in `right`.
pub(crate) fn lines<const N: usize>(header: [&str; N], rows: &[[String; N]], right: &[usize]) -> Vec<String> {
    let header = header.map(str::to_owned);
    let all = || std::iter::once(&header).chain(rows);
    let widths: [usize; N] = std::array::from_fn(|column| all().map(|row| row[column].width()).max().unwrap_or(0));
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
            let space = " ".repeat(width - cell.width());
            if right.contains(&column) { format!("{space}{cell}") } else { format!("{cell}{space}") }
        });
        cells.collect::<Vec<String>>().join("  ").trim_end().to_owned()
    };
    all().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_whatever_the_script() {
        let row = |name: &str, count: &str| [name.to_owned(), count.to_owned(), "x".to_owned()];
        let rows = [row("a", "1"), row("田中", "20"), row("e\u{301}", "3"), row("📱 ок", "4")];
        let expected = ["NAME    N  S", "a       1  x", "田中   20  x", "e\u{301}       3  x", "📱 ок   4  x"];
        assert_eq!(lines(["NAME", "N", "S"], &rows, &[1]), expected);
    }
}

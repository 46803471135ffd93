//! A client's file as a QR code: for a terminal, and as a picture.

use std::fmt::Write as _;

use linerate_control::zeroizing::Buffer;
use qrcode::render::svg;
use qrcode::{Color, EcLevel};

/// The modules around a code that stay light (ISO/IEC 18004, 9.1), and what is left of them where a terminal would be
/// too narrow.
const QUIET: usize = 4;
const NARROW_QUIET: usize = 2;

/// The columns of a terminal that nobody widened.
const COLUMNS: usize = 80;

/// Pixels of a module in a picture: cameras fail below six or so.
const PIXELS: usize = 8;

/// From this many bytes on a phone hardly reads the code: more than version 25 takes.
const READABLE: usize = 1273;

/// A QR code. It is a secret, as its text is.
pub struct QrCode {
    code: qrcode::QrCode,
    bytes: usize,
}

/// No QR code takes so much text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} bytes do not fit into a QR code: take the file, or shorten AllowedIPs")]
pub struct TooLong(usize);

impl QrCode {
    /// The smallest code for `text`, with as much error correction as its size allows.
    ///
    /// # Errors
    /// The text is too long.
    pub fn new(text: &[u8]) -> Result<Self, TooLong> {
        let with = |level| qrcode::QrCode::with_error_correction_level(text, level);
        let mut code = with(EcLevel::L).map_err(|_| TooLong(text.len()))?;
        for level in [EcLevel::M, EcLevel::Q, EcLevel::H] {
            match with(level) {
                Ok(better) if better.width() == code.width() => code = better,
                _ => break,
            }
        }
        Ok(Self { code, bytes: text.len() })
    }

    /// Whether phones may fail to read it.
    pub fn is_dense(&self) -> bool {
        self.bytes > READABLE
    }

    /// The code in half blocks, black on white whatever the terminal's colours are.
    pub fn terminal(&self) -> Buffer {
        let width = self.code.width();
        let quiet = if width + 2 * QUIET > COLUMNS { NARROW_QUIET } else { QUIET };
        let side = width + 2 * quiet;
        let mut text = Buffer::with_capacity(side * side * 2);
        for row in (0..side).step_by(2) {
            text.extend(b"\x1b[38;5;16;48;5;231m");
            for column in 0..side {
                let half = match (self.is_dark(column, row, quiet), self.is_dark(column, row + 1, quiet)) {
                    (true, true) => '█',
                    (true, false) => '▀',
                    (false, true) => '▄',
                    (false, false) => ' ',
                };
                // A buffer takes everything.
                let _ = text.write_char(half);
            }
            text.extend(b"\x1b[0m\n");
        }
        text
    }

    /// The code as a picture in the format PNG.
    ///
    /// # Errors
    /// It cannot be encoded.
    pub fn png(&self) -> Result<Vec<u8>, png::EncodingError> {
        let side = (self.code.width() + 2 * QUIET) * PIXELS;
        let mut picture = Vec::new();
        let size = side as u32; // at most 185 modules of 8 pixels
        let mut encoder = png::Encoder::new(&mut picture, size, size);
        encoder.set_color(png::ColorType::Grayscale);
        encoder.set_depth(png::BitDepth::One);
        let mut pixels = vec![0u8; side.div_ceil(8) * side];
        for (row, line) in pixels.chunks_exact_mut(side.div_ceil(8)).enumerate() {
            for column in 0..side {
                let is_light = !self.is_dark(column / PIXELS, row / PIXELS, QUIET);
                line[column / 8] |= u8::from(is_light) << (7 - column % 8);
            }
        }
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&pixels)?;
        writer.finish()?;
        Ok(picture)
    }

    /// The code as a picture in the format SVG.
    pub fn svg(&self) -> String {
        self.code.render::<svg::Color>().module_dimensions(PIXELS as u32, PIXELS as u32).build()
    }

    /// The code as the path of an SVG picture whose sides, the first value, are as many units long as it has modules: the
    /// dark ones, row by row.
    pub fn path(&self) -> (usize, String) {
        let side = self.code.width() + 2 * QUIET;
        let mut path = String::new();
        for row in 0..side {
            let mut column = 0;
            while column < side {
                let run = (column..side).take_while(|&column| self.is_dark(column, row, QUIET)).count();
                if run > 0 {
                    let _ = write!(path, "M{column} {row}h{run}v1h-{run}z");
                }
                column += run.max(1);
            }
        }
        (side, path)
    }

    /// Whether the module in a column and a row is dark, where `quiet` light ones are around all.
    fn is_dark(&self, column: usize, row: usize, quiet: usize) -> bool {
        let inside = 0..self.code.width();
        let (Some(x), Some(y)) = (column.checked_sub(quiet), row.checked_sub(quiet)) else { return false };
        inside.contains(&x) && inside.contains(&y) && self.code[(x, y)] == Color::Dark
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(code: &QrCode) -> usize {
        (code.code.width() - 17) / 4
    }

    #[test]
    fn the_level_rises_only_while_the_code_does_not_grow() {
        // Bytes at level L of ISO/IEC 18004: version 13 takes 425, 14 takes 458.
        for (bytes, expected) in [(425, 13), (426, 14), (458, 14), (459, 15), (2953, 40)] {
            assert_eq!(version(&QrCode::new(&vec![b'x'; bytes]).unwrap()), expected, "{bytes}");
        }
        assert_eq!(QrCode::new(&vec![b'x'; 2954]).err(), Some(TooLong(2954)));
        // A text that fits at level H as well has that.
        assert_eq!(QrCode::new(b"x").unwrap().code.error_correction_level(), EcLevel::H);
        assert_eq!(QrCode::new(&[b'x'; 425]).unwrap().code.error_correction_level(), EcLevel::L);
    }

    #[test]
    fn a_terminal_shows_all_modules_and_80_columns_are_enough_for_a_usual_file() {
        for (bytes, columns) in [(425, 77), (458, 77)] {
            let code = QrCode::new(&vec![b'x'; bytes]).unwrap();
            let text = String::from_utf8(code.terminal().to_vec()).unwrap();
            for line in text.lines() {
                let modules = line.strip_prefix("\x1b[38;5;16;48;5;231m").unwrap().strip_suffix("\x1b[0m").unwrap();
                assert_eq!(modules.chars().count(), columns);
            }
            assert_eq!(text.lines().count(), columns.div_ceil(2));
        }
    }

    #[test]
    fn a_path_covers_the_dark_modules_and_no_others() {
        let code = QrCode::new(&[b'x'; 300]).unwrap();
        let (side, path) = code.path();
        let mut dark = vec![false; side * side];
        for run in path.split_terminator('z') {
            let numbers = run.split(['M', ' ', 'h', 'v']).filter_map(|text| text.parse::<usize>().ok());
            let numbers: Vec<usize> = numbers.collect();
            (0..numbers[2]).for_each(|step| dark[numbers[1] * side + numbers[0] + step] = true);
        }
        for (row, column) in (0..side).flat_map(|row| (0..side).map(move |column| (row, column))) {
            assert_eq!(dark[row * side + column], code.is_dark(column, row, QUIET), "{row} {column}");
        }
    }

    #[test]
    fn a_picture_has_the_same_modules_as_the_terminal() {
        let code = QrCode::new(&[b'x'; 300]).unwrap();
        let picture = code.png().unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(&picture)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        let side = code.code.width() + 2 * QUIET;
        assert_eq!((info.width as usize, info.height as usize), (side * PIXELS, side * PIXELS));
        for (row, column) in (0..side).flat_map(|row| (0..side).map(move |column| (row, column))) {
            let pixel = pixels[row * PIXELS * info.line_size + column * PIXELS / 8] >> (7 - column * PIXELS % 8) & 1;
            assert_eq!(pixel == 0, code.is_dark(column, row, QUIET), "{row} {column}");
        }
    }
}

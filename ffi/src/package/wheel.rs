//! Wheels: a package as one file that pip installs. The format is that of
//! <https://packaging.python.org/en/latest/specifications/binary-distribution-format/>.

use crate::error::Result;
use crate::op::Library;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use std::io::{Cursor, Write};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// The name and the bytes of a wheel of these files.
///
/// # Errors
///
/// If it cannot be compressed.
pub fn build(library: &Library, mut files: Vec<(String, Vec<u8>)>, bytes: &[u8]) -> Result<(String, Vec<u8>)> {
    let tag = format!("py3-none-{}", platform(bytes));
    let stem = format!("{}-{}", library.name, library.version);
    let info = format!("{stem}.dist-info");
    let metadata = format!(
        "Metadata-Version: 2.1\nName: {}\nVersion: {}\nSummary: Operators for PyTorch, JAX and NumPy\nRequires-Python: >=3.9\n",
        library.name, library.version
    );
    let wheel = format!("Wheel-Version: 1.0\nGenerator: tilewright-ffi\nRoot-Is-Purelib: false\nTag: {tag}\n");
    files.push((format!("{info}/METADATA"), metadata.into_bytes()));
    files.push((format!("{info}/WHEEL"), wheel.into_bytes()));
    let record = format!("{info}/RECORD");
    let lines = files.iter().map(|(path, bytes)| {
        format!("{path},sha256={},{}\n", URL_SAFE_NO_PAD.encode(Sha256::digest(bytes)), bytes.len())
    });
    let lines: String = lines.chain([format!("{record},,\n")]).collect();
    files.push((record, lines.into_bytes()));
    let bytes = compress(&files).map_err(|error| format!("the wheel cannot be written: {error}"))?;
    Ok((format!("{stem}-{tag}.whl"), bytes))
}

/// The same files give the same bytes: nothing says when.
fn compress(files: &[(String, Vec<u8>)]) -> zip::result::ZipResult<Vec<u8>> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (path, bytes) in files {
        let mode = if path.ends_with(".so") { 0o755 } else { 0o644 };
        zip.start_file(path.as_str(), SimpleFileOptions::default().unix_permissions(mode))?;
        zip.write_all(bytes)?;
    }
    Ok(zip.finish()?.into_inner())
}

/// The platform that the library runs on: Linux with a glibc that has all versions of symbols that it asks for.
fn platform(library: &[u8]) -> String {
    let machine = std::env::consts::ARCH;
    match newest_glibc(library) {
        Some(minor) => format!("manylinux_2_{minor}_{machine}"),
        None => format!("linux_{machine}"),
    }
}

/// The newest minor version of glibc 2 among the names of versions in the library. Text that only looks like one would ask
/// for too new a system, and never for too old a one.
fn newest_glibc(library: &[u8]) -> Option<u32> {
    const NAME: &[u8] = b"\0GLIBC_2.";
    let starts = library.windows(NAME.len()).enumerate().filter(|(_, window)| *window == NAME).map(|(at, _)| at);
    let minors = starts.filter_map(|at| {
        let rest = &library[at + NAME.len()..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
    });
    minors.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_platform_is_the_newest_that_a_symbol_asks_for() {
        assert_eq!(newest_glibc(b"\0GLIBC_2.2.5\0memcpy\0GLIBC_2.34\0GLIBC_2.9\0"), Some(34));
        assert_eq!(newest_glibc(b"see GLIBC_2.99"), None, "names begin behind a zero byte");
        assert_eq!(newest_glibc(b"\0GLIBC_2."), None);
    }

    #[test]
    fn a_wheel_has_a_record_of_all_its_files() {
        let library = Library { name: "my_ops".into(), version: "1.2.0".into(), ops: Vec::new() };
        let files = vec![("my_ops/__init__.py".to_string(), b"x = 1\n".to_vec())];
        let (name, bytes) = build(&library, files.clone(), b"\0GLIBC_2.17\0").expect("a wheel");
        assert_eq!(name, format!("my_ops-1.2.0-py3-none-manylinux_2_17_{}.whl", std::env::consts::ARCH));
        assert_eq!(bytes, build(&library, files, b"\0GLIBC_2.17\0").expect("a wheel").1, "no time is in it");
        let mut zip = zip::ZipArchive::new(Cursor::new(bytes)).expect("a zip file");
        let mut record = String::new();
        let mut file = zip.by_name("my_ops-1.2.0.dist-info/RECORD").expect("a record");
        std::io::Read::read_to_string(&mut file, &mut record).expect("text");
        // printf 'x = 1\n' | openssl dgst -sha256 -binary | basenc --base64url
        let first = record.lines().next().expect("a line");
        assert_eq!(first, "my_ops/__init__.py,sha256=nia_NpkRxFwkPGhBR7I_yeHc_PJX0pmhxjIBam_NM_Q,6");
        assert_eq!(record.lines().count(), 4);
    }
}

//! Output files that are whole or not there: written beside their destination under a temporary name, then renamed.

use std::io::{BufWriter, Error, Result, Write};
use std::path::Path;

/// Writes a file through `fill`. When anything fails (unwritable directory, full disk) the destination is untouched
/// and the error names it.
pub fn write(path: &Path, fill: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let named = |e: Error| Error::new(e.kind(), format!("cannot write {}: {e}", path.display()));
    let dir = match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    };
    if path.is_dir() {
        return Err(Error::other(format!("cannot write {}: it is a directory", path.display())));
    }
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(0o644));
    }
    let file = builder.tempfile_in(dir).map_err(named)?;
    let mut buffered = BufWriter::new(file);
    fill(&mut buffered).map_err(named)?;
    let file = buffered.into_inner().map_err(|e| named(e.into_error()))?;
    file.persist(path).map_err(|e| named(e.error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_leaves_the_old_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        write(&path, |w| w.write_all(b"first")).unwrap();
        let e = write(&path, |w| {
            w.write_all(b"half")?;
            Err(Error::other("disk full"))
        });
        assert!(e.unwrap_err().to_string().contains("disk full"));
        assert_eq!(std::fs::read(&path).unwrap(), b"first");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(write(&dir.path().join("none/out"), |_| Ok(())).unwrap_err().to_string().contains("none/out"));
    }
}

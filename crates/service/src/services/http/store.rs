//! Where a server finds its files.

/// The source of files.
pub trait Store {
    /// Returns what a path refers to, or `None` if nothing is served there. No segment of the path is empty
    /// or begins with a dot.
    fn find(&mut self, parts: &[String]) -> Option<Found>;
    /// Returns the entries of a directory, in order.
    fn list(&mut self, parts: &[String]) -> Vec<Entry>;
}

/// What a path refers to.
pub enum Found {
    /// A file.
    File(Box<dyn Content>),
    /// A folder.
    Folder,
}

/// An open file.
pub trait Content {
    /// Returns its length in bytes.
    fn length(&self) -> u64;
    /// Reads from an offset and returns the number of bytes read; zero at the end of the file.
    fn read(&mut self, at: u64, into: &mut [u8]) -> usize;
}

/// An entry of a folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Whether it is a folder.
    pub is_folder: bool,
}

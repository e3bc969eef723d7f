//! The connections of an adapter by communication id.

use super::links::Link;
use super::slab::Slab;
use super::{NumberTable, numbers};
use crate::proto::numbers::NumberKind;

/// Connections and attempts; each has a communication id and an index.
pub(super) struct LinkTable {
    /// Indices by communication id.
    ids: NumberTable<'static, usize>,
    links: Slab<Link>,
}

impl LinkTable {
    /// Makes a table of `count` slots; `None` if there is no memory for their ids.
    pub(super) fn new(secret: [u8; 16], count: usize) -> Option<Self> {
        Some(Self {
            ids: numbers(NumberKind::Word, secret, count)?,
            links: Slab::new(),
        })
    }

    /// Makes room for the next connection; returns its index, or `None` if there is no memory.
    pub(super) fn reserve(&mut self) -> Option<usize> {
        self.links.has_room().then(|| self.links.vacant_key())
    }

    /// Adds a connection that is made with its id, after [`reserve`](Self::reserve); `None` if no
    /// id is left.
    pub(super) fn draw_with(&mut self, link: impl FnOnce(u32) -> Link) -> Option<u32> {
        let id = self.ids.draw(self.links.vacant_key())?;
        self.links.insert(link(id));
        Some(id)
    }

    /// Returns the index of a connection.
    pub(super) fn index(&self, id: u32) -> Option<usize> {
        self.ids.get(id).copied()
    }

    pub(super) fn get(&self, id: u32) -> Option<&Link> {
        self.links.get(self.index(id)?)
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Link> {
        let index = self.index(id)?;
        self.links.get_mut(index)
    }

    /// Returns the connection with an index.
    pub(super) fn at(&self, index: usize) -> Option<&Link> {
        self.links.get(index)
    }

    /// Returns the connection with an index, to change it.
    pub(super) fn at_mut(&mut self, index: usize) -> Option<&mut Link> {
        self.links.get_mut(index)
    }

    /// Removes a connection; returns it with its index.
    pub(super) fn remove(&mut self, id: u32) -> Option<(usize, Link)> {
        let index = self.ids.remove(id)?;
        Some((index, self.links.remove(index)?))
    }

    pub(super) fn len(&self) -> usize {
        self.links.len()
    }

    /// Returns a bound of the indices.
    pub(super) fn bound(&self) -> usize {
        self.links.bound()
    }

    #[cfg(feature = "udp")]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Link> {
        self.links.iter().map(|(_, link)| link)
    }
}

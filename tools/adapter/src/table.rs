// SPDX-License-Identifier: GPL-2.0
//! Objects of a machine by their handles.

/// A table with a fixed number of handles. A freed handle is reused as late as possible.
pub struct Table<T> {
    first: u32,
    limit: u32,
    next: u32,
    slots: Vec<Option<T>>,
    count: u32,
}

impl<T> Table<T> {
    /// A table with the handles `first..limit`.
    pub fn new(first: u32, limit: u32) -> Self {
        Self {
            first,
            limit,
            next: first,
            slots: Vec::new(),
            count: 0,
        }
    }

    /// The number of objects.
    pub fn len(&self) -> u32 {
        self.count
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The object with this handle.
    pub fn get(&self, handle: u32) -> Option<&T> {
        self.slots.get(handle as usize)?.as_ref()
    }

    /// The object with this handle.
    pub fn get_mut(&mut self, handle: u32) -> Option<&mut T> {
        self.slots.get_mut(handle as usize)?.as_mut()
    }

    /// All objects, with their handles.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(handle, slot)| Some((handle as u32, slot.as_ref()?)))
    }

    /// Adds the object that `make` creates for a handle. `None` if no handle is free or `make`
    /// returns `None`.
    pub fn insert(&mut self, make: impl FnOnce(u32) -> Option<T>) -> Option<u32> {
        let handle = (self.next..self.limit)
            .chain(self.first..self.next)
            .find(|handle| self.get(*handle).is_none())?;
        self.put(handle, make(handle)?);
        self.next = handle + 1;
        Some(handle)
    }

    /// Adds an object with this handle; `None` if the handle is in use.
    pub fn insert_at(&mut self, handle: u32, object: T) -> Option<u32> {
        if handle >= self.limit || self.get(handle).is_some() {
            return None;
        }
        self.put(handle, object);
        Some(handle)
    }

    fn put(&mut self, handle: u32, object: T) {
        if self.slots.len() <= handle as usize {
            self.slots.resize_with(handle as usize + 1, || None);
        }
        self.slots[handle as usize] = Some(object);
        self.count += 1;
    }

    /// Removes the object with this handle.
    pub fn remove(&mut self, handle: u32) -> Option<T> {
        let object = self.slots.get_mut(handle as usize)?.take()?;
        self.count -= 1;
        Some(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_rest() {
        let mut table = Table::new(2, 5);
        assert_eq!(table.insert(|_| Some('a')), Some(2));
        assert_eq!(table.remove(2), Some('a'));
        assert_eq!(table.remove(2), None);
        assert_eq!(table.insert(|_| Some('b')), Some(3));
        assert_eq!(table.insert(|_| Some('c')), Some(4));
        assert_eq!(table.insert(|_| Some('d')), Some(2));
        assert_eq!(table.insert(|_| Some('e')), None);
        assert_eq!(table.insert_at(1, 'f'), Some(1));
        assert_eq!(table.insert_at(1, 'g'), None);
        assert_eq!(table.insert_at(5, 'g'), None);
        assert_eq!(table.len(), 4);
        assert_eq!(table.get(u32::MAX), None);
    }
}

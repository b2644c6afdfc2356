//! Unit tests of `src/api/http/paging.rs`, which includes them.

use super::*;

fn paging(limit: u16, iterator: Option<&String>) -> PageRequest {
    Paging { limit: Some(limit), iterator: iterator.cloned() }.cut().unwrap()
}

/// The page of a list of these, as a database would give it.
fn page(cut: PageRequest, list: &[u128]) -> Page<u128> {
    let (Keyset { towards, beyond, limit }, mut rows) = (cut.ask(), list.to_vec());
    rows.retain(|n| match towards {
        Towards::Older => *n < beyond.as_u128(),
        Towards::Newer => *n > beyond.as_u128(),
    });
    rows.sort_unstable();
    if towards == Towards::Older {
        rows.reverse();
    }
    rows.truncate(usize::try_from(limit).unwrap());
    cut.page(rows, |n| Uuid::from_u128(*n), |n| n)
}

#[test]
fn a_list_is_the_same_forward_and_back() {
    let list = [1, 2, 3, 4, 5];
    let first = page(paging(2, None), &list);
    let second = page(paging(2, first.iterator.as_ref()), &list);
    let third = page(paging(2, second.iterator.as_ref()), &list);
    assert_eq!((&first.data, &second.data, &third.data), (&vec![5, 4], &vec![3, 2], &vec![1]));
    assert!(first.prev_iterator.is_none() && third.iterator.is_none() && third.done);
    let second_again = page(paging(2, third.prev_iterator.as_ref()), &list);
    let first_again = page(paging(2, second_again.prev_iterator.as_ref()), &list);
    assert_eq!((&second_again.data, &first_again.data), (&second.data, &first.data));
    assert!(first_again.prev_iterator.is_none() && !first_again.done);
    assert_eq!(page(paging(2, first_again.iterator.as_ref()), &list).data, second.data);
}

#[test]
fn changes_between_pages_repeat_and_hide_nothing() {
    let first = page(paging(2, None), &[1, 2, 3, 4]);
    let second = page(paging(2, first.iterator.as_ref()), &[1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(second.data, [2, 1]);
    let back = page(paging(2, second.prev_iterator.as_ref()), &[1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(back.data, [4, 3]);
    let newest = page(paging(2, back.prev_iterator.as_ref()), &[5, 6, 7]);
    assert_eq!((&newest.data[..], newest.prev_iterator.is_some()), (&[6, 5][..], true));
    // Pages of which nothing is left lead on both ways.
    let gone = page(paging(2, second.prev_iterator.as_ref()), &[1, 2]);
    assert_eq!((&gone.data[..], &gone.prev_iterator), (&[][..], &None));
    assert_eq!(page(paging(2, gone.iterator.as_ref()), &[1, 2]).data, [2, 1]);
    let gone = page(paging(2, first.iterator.as_ref()), &[3, 4]);
    assert_eq!((&gone.data[..], gone.done), (&[][..], true));
    assert_eq!(page(paging(2, gone.prev_iterator.as_ref()), &[3, 4]).data, [4, 3]);
}

#[test]
fn short_list_has_the_same_pages() {
    let list = [5, 4, 3, 2, 1];
    let page_of_all = |cut: PageRequest| cut.page_of_all(list.to_vec(), |n| Uuid::from_u128(*n), |n| n);
    let mut cut = paging(2, None);
    loop {
        let (whole, read) = (page_of_all(cut), page(cut, &list));
        assert_eq!((&whole.data, &whole.iterator), (&read.data, &read.iterator));
        assert_eq!(whole.prev_iterator, read.prev_iterator);
        if let Some(back) = &whole.prev_iterator {
            let back = paging(2, Some(back));
            assert_eq!(page_of_all(back).data, page(back, &list).data);
        }
        match &whole.iterator {
            Some(next) => cut = paging(2, Some(next)),
            None => break,
        }
    }
}

#[test]
fn a_page_links_to_both_sides() {
    let first = page(paging(1, None), &[1, 2, 3]);
    let second = page(paging(1, first.iterator.as_ref()), &[1, 2, 3]);
    let response = second.answer(&"/v1/x?a=1&iterator=old&limit=2".parse().unwrap());
    let link = response.headers()[header::LINK].to_str().unwrap();
    let (next, prev) = link.split_once(", ").unwrap();
    for (link, rel) in [(next, "next"), (prev, "prev")] {
        assert!(
            link.starts_with("</v1/x?a=1&limit=2&iterator=") && link.ends_with(&format!("rel=\"{rel}\"")),
            "{link}"
        );
    }
}

#[test]
fn wrong_limits_and_iterators_are_refused() {
    for limit in [0, 251] {
        assert!(Paging { limit: Some(limit), iterator: None }.cut().is_err());
    }
    let of_another_way = base64url::encode([[0; 16].as_slice(), &[2]].concat());
    for wrong in ["x".to_owned(), String::new(), of_another_way, base64url::encode([0; 18])] {
        assert!(Paging { limit: None, iterator: Some(wrong.clone()) }.cut().is_err(), "{wrong}");
    }
}

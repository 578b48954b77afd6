/* SPDX-License-Identifier: Apache-2.0 */
/* test_name_book.c: names of addresses, the newest, and no more than there is room for. */
#include "gateway/name_book.h"
#include "test.h"

#include <arpa/inet.h>
#include <stdio.h>

static struct ip address(unsigned i)
{
    return ip_from_v4(htonl(0xc6336400 + i));
}

TEST(the_newest_name_counts)
{
    struct name_book *b = name_book_new();
    struct ip one = address(1), two = address(2);
    REQUIRE(b);
    CHECK(!name_book_find(b, &one));
    name_book_add(b, "a.example", &one);
    name_book_add(b, "b.example", &one);
    CHECK_STREQ(name_book_find(b, &one), "b.example");
    CHECK(!name_book_find(b, &two));
    name_book_free(b);
    name_book_free(NULL);
}

TEST(the_oldest_makes_room)
{
    struct name_book *b = name_book_new();
    char name[32];
    struct ip a;
    REQUIRE(b);
    for (unsigned i = 0; i < NAME_BOOK_MAX + 10; i++) {
        a = address(i);
        (void)snprintf(name, sizeof name, "n%u.example", i);
        name_book_add(b, name, &a);
        name_book_add(b, name, &a); /* takes no second place */
    }
    for (unsigned i = 0; i < NAME_BOOK_MAX + 10; i++) {
        a = address(i);
        (void)snprintf(name, sizeof name, "n%u.example", i);
        if (i < 10)
            CHECK(!name_book_find(b, &a));
        else
            CHECK_STREQ(name_book_find(b, &a), name);
    }
    name_book_free(b);
}

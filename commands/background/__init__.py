"""A process in the background that keeps models and indexes open: the next search takes a seventh of the time.

`binocle search --stay 15m` leaves one behind (`server`). The program asks it before it imports anything else
(`client`). Commands that it would not answer in the same bytes run in the program itself.
"""

"""The one exception for mistakes that a user can mend."""


class UserError(ValueError):
    """A wrong value, name or file given by the user.

    The message is one line that names the field or file, the value found and what is
    allowed. The commands print it without a traceback and exit with code 2.
    """

(class_declaration name: [(type_identifier) @name (user_type (type_identifier) @name)]) @class
(class_declaration name: [(type_identifier) @name (user_type (type_identifier) @name)] (inheritance_specifier inherits_from: (user_type (type_identifier) @super))) @class
(class_declaration "struct" name: (type_identifier) @name) @struct
(class_declaration "enum" name: (type_identifier) @name) @enum
(class_declaration "extension" name: (user_type (type_identifier) @name)) @impl
(protocol_declaration name: (type_identifier) @name) @interface
(protocol_declaration name: (type_identifier) @name (inheritance_specifier inherits_from: (user_type (type_identifier) @super))) @interface
(enum_entry name: (simple_identifier) @name) @constant
(function_declaration name: (simple_identifier) @name) @function
(protocol_function_declaration name: (simple_identifier) @name) @method
(init_declaration "init" @name) @constructor
(typealias_declaration name: (type_identifier) @name) @type
(source_file (property_declaration name: (pattern bound_identifier: (simple_identifier) @name)) @variable)
(class_body (property_declaration name: (pattern bound_identifier: (simple_identifier) @name)) @property)
(enum_class_body (property_declaration name: (pattern bound_identifier: (simple_identifier) @name)) @property)
(protocol_property_declaration name: (pattern bound_identifier: (simple_identifier) @name)) @property
(associatedtype_declaration name: (type_identifier) @name) @type
(macro_declaration (simple_identifier) @name) @macro
(deinit_declaration "deinit" @name) @method
(subscript_declaration "subscript" @name) @method
(precedence_group_declaration (simple_identifier) @name) @type
(function_declaration name: [(custom_operator) "==" "!=" "<" ">" "<=" ">=" "+" "-" "*" "/" "%" "+=" "-=" "*=" "/=" "===" "!=="] @name) @function

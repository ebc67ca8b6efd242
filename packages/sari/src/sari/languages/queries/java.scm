(class_declaration name: (identifier) @name) @class
(class_declaration name: (identifier) @name superclass: (superclass [(type_identifier) @super (generic_type (type_identifier) @super)])) @class
(class_declaration name: (identifier) @name interfaces: (super_interfaces (type_list [(type_identifier) @super (generic_type (type_identifier) @super)]))) @class
(interface_declaration name: (identifier) @name) @interface
(interface_declaration name: (identifier) @name (extends_interfaces (type_list [(type_identifier) @super (generic_type (type_identifier) @super)]))) @interface
(record_declaration name: (identifier) @name) @class
(record_declaration name: (identifier) @name interfaces: (super_interfaces (type_list [(type_identifier) @super (generic_type (type_identifier) @super)]))) @class
(enum_declaration name: (identifier) @name) @enum
(enum_declaration name: (identifier) @name interfaces: (super_interfaces (type_list [(type_identifier) @super (generic_type (type_identifier) @super)]))) @enum
(enum_constant name: (identifier) @name) @constant
(annotation_type_declaration name: (identifier) @name) @interface
(method_declaration name: (identifier) @name) @method
(constructor_declaration name: (identifier) @name) @constructor
(field_declaration declarator: (variable_declarator name: (identifier) @name)) @field
(constant_declaration declarator: (variable_declarator name: (identifier) @name)) @constant
(record_declaration parameters: (formal_parameters (formal_parameter name: (identifier) @name) @field))
(annotation_type_element_declaration name: (identifier) @name) @method
(compact_constructor_declaration name: (identifier) @name) @constructor
